"""What a pool knows of each of its workers."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.search.distributed.alikeness import Slowness
from tf_placer.search.distributed.tallies import Tally

__all__ = ["PoolTimes", "PooledWorker", "Task"]


@dataclasses.dataclass(frozen=True)
class PoolTimes:
    """How long a pool waits for what, in seconds.

    Attributes:
        poll: between two looks at whether the search was interrupted.
        ping: between two questions to a worker whether it is there.
        silence: without an answer, after which a worker counts as lost.
        start: of the processes of a worker, at most, beside what it measures then.
        check: between two measurements of the graph as it came by a worker that was set aside.
        machine: without any worker, after which no machine is waited for any more.
    """

    poll: float = 0.2
    ping: float = 5.0
    silence: float = 30.0
    start: float = 660.0
    check: float = 120.0
    machine: float = 300.0


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
class PooledWorker:
    """A worker, what it does and what is known of it.

    Attributes:
        handle: what the fleet knows it by.
        tally: what it has done.
        doing: "hello", "begin", "measure", "check", "ask" or "release"; empty when it waits.
        call: the call under way; None when it waits.
        since_secs: when that began, by the clock.
        limit_secs: when it must have ended, by how long the pool has listened.
        task: what it measures; None unless it does.
        reference_secs: what a step of the graph as it came takes on its machine; None where it does
            not run, and before the worker is ready.
        slowness: of its machine.
        answer: what it was last asked for.
        ping: the call that asks whether it is there; None where none is under way.
        pinged_secs: when that began, by how long the pool has listened.
        heard_secs: when it last answered, likewise; None before it has a machine.
        aside_secs: when it was set aside, or measured the graph as it came since; None where it is
            not set aside.
    """

    handle: Any
    tally: Tally
    doing: str = ""
    call: Any = None
    since_secs: float = 0.0
    limit_secs: float = float("inf")
    task: Task | None = None
    reference_secs: float | None = None
    slowness: Slowness = dataclasses.field(default_factory=Slowness)
    answer: Any = None
    ping: Any = None
    pinged_secs: float = 0.0
    heard_secs: float | None = None
    aside_secs: float | None = None

    @property
    def name(self) -> str:
        """Its name."""
        return self.tally.name

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
            return "starting" if self.heard_secs is not None else "waiting for a machine"
        if self.aside_secs is not None:
            return "set aside"
        return "measuring" if self.doing else "idle"
