"""The base of placers that change the placement that they have by one move at a time."""

from __future__ import annotations

import abc
import sys
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.placers.heuristics.neighborhood import Neighborhood
from tf_placer.placers.heuristics.simple_starts import simple_starts
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["LocalSearch", "Value"]

# How many moves a kick is, as a share of the groups that can be moved, and at least.
_KICK_SHARE = 0.03
_LEAST_KICK = 2

Value = tuple[int, float]
"""What a placement is worth, less being better: one that runs (0, seconds), one that runs out of
memory (1, bytes too many), anything else (2, 0)."""


class LocalSearch(Placer):
    """Measures one device for everything and contiguous cuts, then moves from the best of them.

    Placement n, counted from 0 over the whole search, is one move from the placement that is
    current when it is proposed; which move depends on (seed, n) alone. Measurements are judged in
    order, each beside what is current by then: of a batch of moves from the same placement,
    several may be taken one after the other, and each of them is that one move alone.

    Failures are worse than anything that runs. While nothing runs, placements that run out of
    memory are compared by the bytes that are too many, if the memory of the devices is known from
    the problem and the peaks from the measurements; other failures are all alike, so that the
    search walks on from one to the next.
    """

    # Moves are rarely taken, so several from one placement lose little, and keep cores busy.
    batch_size = 8

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        problem: PlacementProblem | None = None,
    ) -> None:
        """Makes a placer.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: of the moves.
            problem: what says how much memory the devices have; None if that is not known.
        """
        super().__init__(groups, legal, seed=seed)
        self._memory_bytes = problem and np.array([d.memory_bytes for d in problem.devices])
        self._neighborhood = Neighborhood(groups, legal)
        self._starts = simple_starts(groups, legal, seed=seed)
        self._moves = False
        self._num_observed = 0
        (self._best,) = (self._current,) = self._starts.propose(1)
        self._best_value: Value = (sys.maxsize, 0.0)
        # None where the next placement that is measured becomes the current one, whatever it is.
        self._current_value: Value | None = None

    @property
    def num_single_moves(self) -> int:
        """How many moves of one group alone there are."""
        return self._neighborhood.num_single_moves

    @property
    def current(self) -> np.ndarray:
        """int32 [num_groups], the placement that moves start from."""
        return self._current

    @property
    def best(self) -> tuple[np.ndarray, Value]:
        """The best placement so far, int32 [num_groups], and what it is worth."""
        return self._best, self._best_value

    def propose(self, count: int) -> np.ndarray:
        """Proposes the next starts or, when they are measured, moves; see `Placer.propose`."""
        if not self._moves:
            return self._starts.propose(count)
        placements = np.empty([count, self.groups.num_groups], np.int32)
        if not self.num_single_moves:
            return placements[:0]
        for number, placement in enumerate(placements, self._num_observed):
            placement[:] = self._next(np.random.default_rng([self.seed, number]))
        return placements

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Judges placements one after the other; see `Placer.observe`."""
        moves = self._moves
        for placement, measurement in zip(placements, measurements, strict=True):
            value = self._value(measurement)
            if value < self._best_value:
                self._best, self._best_value = placement.astype(np.int32), value
            if self._current_value is None:
                self._take(placement, value)
            elif not moves:
                self._take(self._best, self._best_value)
            else:
                self._judge(placement, value, self._current_value)
            self._num_observed += 1
        self._starts.observe(placements, measurements)
        self._moves = not len(self._starts.propose(1))

    @abc.abstractmethod
    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        """Takes a measured placement or leaves it.

        Args:
            placement: int32 [num_groups].
            value: what it is worth.
            current: what the current placement is worth.
        """

    def _take(self, placement: np.ndarray, value: Value) -> None:
        self._current = placement.astype(np.int32)
        self._current_value = value

    def _kick(self) -> None:
        """Lets the search go on from the best placement after several moves at once."""
        self._current = self._best
        self._current_value = None

    def _next(self, generator: np.random.Generator) -> np.ndarray:
        placement = self._current
        num_moves = 1
        if self._current_value is None:
            num_moves = max(_LEAST_KICK, int(_KICK_SHARE * self._neighborhood.num_movable))
        for _ in range(num_moves):
            placement = self._neighborhood.moved(placement, generator)
        return placement

    def _value(self, measurement: Measurement) -> Value:
        if measurement.median_secs is not None:
            return 0, measurement.median_secs
        failure, peaks = measurement.failure, measurement.peak_bytes
        if (
            failure is None
            or failure.kind is not FailureKind.OUT_OF_MEMORY
            or peaks is None
            or self._memory_bytes is None
        ):
            return 2, 0.0
        return 1, float(np.maximum(np.array(peaks) - self._memory_bytes, 0).sum())
