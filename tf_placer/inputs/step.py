"""One step of a graph: fetches, feeds and initializers, all by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["QueueRunner", "Step"]


@dataclasses.dataclass(frozen=True)
class QueueRunner:
    """The threads that fill a queue, each of which runs one operation in a loop.

    Attributes:
        queue: the name of the queue.
        enqueue: the names of the operations that fill the queue.
        close: the name of the operation that closes the queue at the end of its input.
        cancel: the name of the operation that closes the queue at once.
        ends: the error codes that signal the end of the input; TensorFlow's default if empty.
    """

    queue: str
    enqueue: tuple[str, ...]
    close: str
    cancel: str
    ends: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns all fields as a JSON object."""
        return {**dataclasses.asdict(self), "enqueue": list(self.enqueue), "ends": list(self.ends)}


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a graph.

    Attributes:
        fetches: the names of the operations ("train") and tensors ("loss:0") that a step fetches.
        feeds: the value of each fed tensor, by tensor name ("x:0").
        initializers: the names of the operations that run once, together, before the first step.
        initializer_feeds: the value of each tensor that is fed to the initializers.
        queue_runners: the queue runners of the step, which start after the initializers.
        restored: values that variables get after the initializers, by name of the variable's
            operation.
    """

    fetches: tuple[str, ...]
    feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    initializers: tuple[str, ...] = ()
    initializer_feeds: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    queue_runners: tuple[QueueRunner, ...] = ()
    restored: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
