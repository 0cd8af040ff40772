"""The state of a worker of a pool."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.search.distributed.straggler_detection import RelativeStepTime
from tf_placer.search.distributed.supervision import Heartbeat
from tf_placer.search.distributed.worker_statistics import WorkerStatistics

__all__ = ["Task", "WorkerState"]


@dataclasses.dataclass
class Task:
    """A placement to measure.

    Attributes:
        key: the key that it was submitted under.
        placement: int32 [num_groups], a device index per group.
        losses: the reasons for the losses of workers that measured it.
    """

    key: Any
    placement: np.ndarray
    losses: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class WorkerState:
    """The state of a worker.

    Attributes:
        handle: its handle from the backend.
        statistics: its statistics.
        heartbeat: its heartbeat.
        doing: "begin", "measure", "check", "ask" or "release"; empty if it is idle.
        call: the call under way; None if it is idle.
        since_secs: the start of the call, by the clock.
        limit_secs: the time limit of the call, by the pause-aware clock.
        task: the placement that it measures; None for none.
        reference_secs: the step time of the original graph on its machine; None if that does not
            run, and before the worker is ready.
        relative_step_time: the speed of its machine.
        answer: the result of its last `WorkerPool.call_one`.
        aside_secs: the time when it was set aside or last rechecked; None if it is not set aside.
    """

    handle: Any
    statistics: WorkerStatistics
    heartbeat: Heartbeat
    doing: str = ""
    call: Any = None
    since_secs: float = 0.0
    limit_secs: float = float("inf")
    task: Task | None = None
    reference_secs: float | None = None
    relative_step_time: RelativeStepTime = dataclasses.field(default_factory=RelativeStepTime)
    answer: Any = None
    aside_secs: float | None = None

    @property
    def name(self) -> str:
        """The name of the worker."""
        return self.statistics.name

    @property
    def has_machine(self) -> bool:
        """True once the worker has answered."""
        return self.heartbeat.answer_secs is not None

    @property
    def is_ready(self) -> bool:
        """True once the worker has measured the original graph."""
        return self.statistics.ready_secs is not None

    @property
    def can_measure(self) -> bool:
        """True if the worker is ready and not set aside."""
        return self.is_ready and self.aside_secs is None

    @property
    def state(self) -> str:
        """The state in words."""
        if not self.is_ready:
            return "starting" if self.has_machine else "waiting for a machine"
        if self.aside_secs is not None:
            return "set aside"
        return "measuring" if self.doing else "idle"
