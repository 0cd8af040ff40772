"""Parts of a live search that may take long: made when they are needed, and breakable."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.interrupts import Interrupts
from tf_placer.placers.placer import Placer

__all__ = ["BreakableEnvironment", "DeferredPlacer"]


class DeferredPlacer(Placer):
    """A placer that is made when it is first needed, because making it takes long."""

    def __init__(
        self,
        name: str,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        interrupts: Interrupts,
        make: Callable[[], Placer | None],
    ) -> None:
        """Makes nothing yet.

        Args:
            name: of the placer.
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            interrupts: break off the making, and the making of proposals.
            make: makes the placer, or None if that is not possible: it then proposes nothing.
        """
        super().__init__(groups, legal, seed=seed)
        self.name = name
        self._interrupts = interrupts
        self._make = make
        self._is_made = False
        self._placer: Placer | None = None

    @property
    def placer(self) -> Placer | None:
        """The placer, or None if it was not made."""
        return self._placer

    def propose(self, count: int) -> np.ndarray:
        """What the placer proposes; see `Placer.propose`."""
        placer = self._made()
        if placer is not None:
            try:
                with self._interrupts.breakable():
                    return placer.propose(count)
            except KeyboardInterrupt:
                pass  # The search asks why, and ends.
        return np.zeros([0, self.groups.num_groups], np.int32)

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Lets the placer observe; see `Placer.observe`."""
        placer = self._made()
        if placer is not None:
            placer.observe(placements, measurements)

    def _made(self) -> Placer | None:
        if not self._is_made:
            try:
                with self._interrupts.breakable():
                    self._placer = self._make()
            except KeyboardInterrupt:
                self._placer = None
            self._is_made = True
        return self._placer


class BreakableEnvironment:
    """An environment whose measurements can be broken off."""

    def __init__(
        self,
        sessions: SessionEnvironment,
        environment: PairedEnvironment,
        interrupts: Interrupts,
        timeout: Callable[[], float],
    ) -> None:
        """Measures nothing yet.

        Args:
            sessions: runs the steps.
            environment: what measures with them.
            interrupts: break off a measurement.
            timeout: how many seconds the next measurement may take.
        """
        self._sessions = sessions
        self._environment = environment
        self._interrupts = interrupts
        self._timeout = timeout

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
            with self._interrupts.breakable():
                return measure()
        except KeyboardInterrupt:
            # What the processes are doing is of no interest any more.
            self._sessions.stop()
            return Measurement(failure=Failure(FailureKind.TIMEOUT, "broken off"))
