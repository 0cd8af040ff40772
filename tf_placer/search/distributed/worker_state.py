"""The state of a worker of a pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.search.distributed.straggler_detection import RelativeStepTime
from tf_placer.search.distributed.supervision import Heartbeat
from tf_placer.search.distributed.tallies import Tally

__all__ = ["Task", "WorkerState"]


@dataclasses.dataclass
class Task:
    """A placement to measure.

    Attributes:
        key: what it was submitted under.
        placement: int32 [num_groups], a device index per group.
        losses: why workers were lost that measured it.
    """

    key: Any
    placement: np.ndarray
    losses: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class WorkerState:
    """A worker, what it does and what is known of it.

    Attributes:
        handle: what the fleet knows it by.
        tally: what it has done.
        heartbeat: its signs of life.
        doing: "begin", "measure", "check", "ask" or "release"; empty when it waits.
        call: the call under way; None when it waits.
        since_secs: when that began, by the clock.
        limit_secs: when it must have ended, by the clock that skips pauses.
        task: what it measures; None unless it does.
        reference_secs: what a step of the graph as it came takes on its machine; None where it does
            not run, and before the worker is ready.
        slowness: of its machine.
        answer: what it was last asked for.
        aside_secs: when it was set aside, or measured the graph as it came since; None where it is
            not set aside.
    """

    handle: Any
    tally: Tally
    heartbeat: Heartbeat
    doing: str = ""
    call: Any = None
    since_secs: float = 0.0
    limit_secs: float = float("inf")
    task: Task | None = None
    reference_secs: float | None = None
    slowness: RelativeStepTime = dataclasses.field(default_factory=RelativeStepTime)
    answer: Any = None
    aside_secs: float | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.tally.name

    @property
    def has_machine(self) -> bool:
        """Whether it has answered."""
        return self.heartbeat.heard_secs is not None

    @property
    def is_ready(self) -> bool:
        """Whether it has begun."""
        return self.tally.ready_secs is not None

    @property
    def can_measure(self) -> bool:
        """Whether it has begun and is not set aside."""
        return self.is_ready and self.aside_secs is None

    @property
    def state(self) -> str:
        """What it does, in a word."""
        if not self.is_ready:
            return "starting" if self.has_machine else "waiting for a machine"
        if self.aside_secs is not None:
            return "set aside"
        return "measuring" if self.doing else "idle"
