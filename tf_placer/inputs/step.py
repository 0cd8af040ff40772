"""What one step of a graph runs: fetches, feeds and initializers, all by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["QueueRunner", "Step"]


@dataclasses.dataclass(frozen=True)
class QueueRunner:
    """The threads that fill a queue: one per operation, which it runs again and again.

    Attributes:
        queue: name of the queue.
        enqueue: names of the operations that fill it.
        close: name of the operation that closes it when there is nothing more to fill it with.
        cancel: name of the operation that closes it at once.
        ends: codes of the errors that say that there is nothing more; TensorFlow's own when empty.
    """

    queue: str
    enqueue: tuple[str, ...]
    close: str
    cancel: str
    ends: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form: all fields."""
        return {**dataclasses.asdict(self), "enqueue": list(self.enqueue), "ends": list(self.ends)}


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a graph.

    Attributes:
        fetches: names of the operations ("train") and tensors ("loss:0") that a step runs.
        feeds: the value of each fed tensor, by tensor name ("x:0").
        initializers: names of the operations that run once, together, before the first step.
        initializer_feeds: the value of each tensor that is fed when the initializers run.
        queue_runners: what fills the queues that the step takes from, behind the initializers.
        restored: values that variables get behind the initializers, by name of the variable's
            operation.
    """

    fetches: tuple[str, ...]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    initializers: tuple[str, ...] = ()
    initializer_feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    queue_runners: tuple[QueueRunner, ...] = ()
    restored: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
