"""Workers that only wait as long as a trial would take: many of them in one process.

Where all that computes is in that process, too, nothing happens while it waits. Then the waits can
be skipped, and the clock be put forward by them: see `SkippingClock`.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tf_placer.environments.environment import Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.distributed.actor_backend import WorkerInfo

__all__ = ["SkippingClock", "WaitingBackend"]

# A placement that does not fit fails early.
_FAILED_TRIAL_SHARE = 0.1
_HOST = "waiting"


class SkippingClock:
    """A real-time clock that is advanced instead of waiting."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts with the time of another clock."""
        self._clock = clock
        self._skipped_secs = 0.0

    def __call__(self) -> float:
        """Gives the time in seconds."""
        return self._clock() + self._skipped_secs

    def sleep(self, secs: float) -> None:
        """Puts the clock forward."""
        self._skipped_secs += secs


@dataclasses.dataclass(eq=False)
class _Call:
    """A call, what it returns, and when it ends."""

    value: Any
    end_secs: float


class WaitingBackend:
    """Workers that simulate a step and wait as long as its trial takes; see `ActorBackend`."""

    def __init__(
        self,
        problem: PlacementProblem,
        original: np.ndarray,
        count: int,
        trial_secs: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Starts nothing yet.

        Args:
            problem: whose steps are simulated.
            original: int32 [num_groups], the original.
            count: how many workers.
            trial_secs: how long a trial of a step as slow as that of the original takes.
            clock: gives the time in seconds.
            sleep: waits.
        """
        self._environment = SimulatedEnvironment(problem)
        [self.original] = self._environment.measure(original[np.newaxis])
        if self.original.median_secs is None:
            raise ValueError("the original must run: other placements wait as long in proportion")
        self._count = count
        self._trial_secs = trial_secs
        self._clock = clock
        self._sleep = sleep

    def trial_secs(self, measurement: Measurement) -> float:
        """Computes how long a trial takes."""
        original_secs, secs = self.original.median_secs, measurement.median_secs
        assert original_secs is not None
        share = _FAILED_TRIAL_SHARE if secs is None else secs / original_secs
        return self._trial_secs * share

    def count_wanted(self) -> int:
        """Counts how many workers there should be; see `ActorBackend.count_wanted`."""
        return self._count

    def start(self) -> object:
        """Starts a worker; see `ActorBackend.start`."""
        return object()

    def call(self, worker: object, method: str, *args: Any) -> _Call:
        """Calls a method of a worker; see `ActorBackend.call`."""
        now_secs = self._clock()
        if method == "begin":
            return _Call(WorkerInfo(_HOST, 0, {}, self.original), now_secs)
        if method != "measure":
            return _Call(None, now_secs)
        row: Mapping[str, Any] = args[0]
        [measurement] = self._environment.measure(np.array([row["row"]], np.int32))
        end_secs = now_secs + self.trial_secs(measurement)
        return _Call((measurement, self.original.median_secs), end_secs)

    def wait(self, calls: Sequence[_Call], timeout_secs: float) -> list[_Call]:
        """Waits for calls to end; see `ActorBackend.wait`."""
        first_secs = min((call.end_secs for call in calls), default=math.inf)
        wait_secs = min(first_secs - self._clock(), timeout_secs)
        if wait_secs > 0:
            self._sleep(wait_secs)
        now_secs = self._clock()
        return [call for call in calls if call.end_secs <= now_secs]

    def result(self, call: _Call) -> Any:
        """Gives what a call returned; see `ActorBackend.result`."""
        return call.value

    def kill(self, worker: object) -> None:
        """Ends a worker; see `ActorBackend.kill`."""

    def close(self) -> None:
        """Ends all workers; see `ActorBackend.close`."""
