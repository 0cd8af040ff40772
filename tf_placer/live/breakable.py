"""Measurements of a live search that can be broken off."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.interrupts import Interrupts

__all__ = ["BreakableEnvironment"]


class BreakableEnvironment:
    """An environment whose measurements can be broken off."""

    def __init__(
        self,
        sessions: SessionEnvironment,
        environment: PairedEnvironment,
        interrupts: Interrupts,
        timeout: Callable[[], float],
        left_secs: Callable[[], float],
    ) -> None:
        """Measures nothing yet.

        Args:
            sessions: runs the steps.
            environment: what measures with them.
            interrupts: break off a measurement.
            timeout: how many seconds the next measurement may take.
            left_secs: the time until all measurements must be over, starting processes included.
        """
        self._sessions = sessions
        self._environment = environment
        self._interrupts = interrupts
        self._timeout = timeout
        self._left_secs = left_secs

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements; see `PairedEnvironment.measure`."""

        def measure_one(row: np.ndarray) -> Measurement:
            [measurement] = self._environment.measure(row[None])
            return measurement

        return [self._measure(functools.partial(measure_one, row)) for row in placements]

    def measure_original(self) -> Measurement:
        """Measures the graph as it came; see `PairedEnvironment.measure_original`."""
        return self._measure(self._environment.measure_original)

    def _measure(self, measure: Callable[[], Measurement]) -> Measurement:
        self._sessions.timeout_secs = self._timeout()
        try:
            with self._interrupts.breakable(max_secs=self._left_secs()):
                return measure()
        except KeyboardInterrupt:
            # What the processes are doing is of no interest any more.
            self._sessions.stop()
            return Measurement(failure=Failure(FailureKind.TIMEOUT, "broken off"))
