"""The base of placers that improve a placement by one move at a time."""

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

_PERTURBATION_SHARE = 0.03
_MIN_PERTURBATION_MOVES = 2

Value = tuple[int, float]
"""The cost of a placement: (0, seconds) if it runs, (1, excess bytes) if it runs out of memory,
(2, 0) for any other failure."""


class LocalSearch(Placer):
    """Measures single devices and contiguous cuts, then moves from the best of them.

    Placement n, counted from 0 over the whole search, is one move away from the placement that is
    current when it is proposed; the move depends on (seed, n) alone. Measurements are judged in
    order, each against the placement that is current by then: of a batch of moves from the same
    placement, several may be accepted one after the other, and each replaces the one before.

    Failures are worse than all placements that run. While no placement runs, those that run out of
    memory are compared by their excess bytes, if the problem gives the memory of the devices and
    the measurements the peaks; all other failures are equal, so that the search moves from one to
    the next.
    """

    # Moves are rarely accepted, so a batch from one placement loses little, and keeps cores busy.
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
            seed: seeds the moves.
            problem: gives the memory of the devices; None if it is not known.
        """
        super().__init__(groups, legal, seed=seed)
        self._memory_bytes = problem and np.array([d.memory_bytes for d in problem.devices])
        self._neighborhood = Neighborhood(groups, legal)
        self._starts = simple_starts(groups, legal, seed=seed)
        self._moves = False
        self._num_observed = 0
        (self._best,) = (self._current,) = self._starts.propose(1)
        self._best_value: Value = (sys.maxsize, 0.0)
        # None if the next measured placement is to become the current one unconditionally.
        self._current_value: Value | None = None

    @property
    def num_single_moves(self) -> int:
        """The number of different moves of a single group."""
        return self._neighborhood.num_single_moves

    @property
    def current(self) -> np.ndarray:
        """The placement that moves start from, int32 [num_groups]."""
        return self._current

    @property
    def best(self) -> tuple[np.ndarray, Value]:
        """The best placement so far, int32 [num_groups], and its value."""
        return self._best, self._best_value

    def propose(self, count: int) -> np.ndarray:
        """Proposes the next starts or, when they are measured, moves; see `Placer.propose`."""
        if not self._moves:
            return self._starts.propose(count)
        placements = np.empty([count, self.groups.num_groups], np.int32)
        if not self.num_single_moves:
            return placements[:0]
        for number, placement in enumerate(placements, self._num_observed):
            placement[:] = self._draw_next(np.random.default_rng([self.seed, number]))
        return placements

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Judges placements one after the other; see `Placer.observe`."""
        moves = self._moves
        for placement, measurement in zip(placements, measurements, strict=True):
            value = self._evaluate(measurement)
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
        """Accepts or rejects a measured placement.

        Args:
            placement: int32 [num_groups].
            value: its value.
            current: the value of the current placement.
        """

    def _take(self, placement: np.ndarray, value: Value) -> None:
        self._current = placement.astype(np.int32)
        self._current_value = value

    def _perturb(self) -> None:
        """Lets the search restart from a perturbation of the best placement."""
        self._current = self._best
        self._current_value = None

    def _draw_next(self, generator: np.random.Generator) -> np.ndarray:
        placement = self._current
        num_moves = 1
        if self._current_value is None:
            share = int(_PERTURBATION_SHARE * self._neighborhood.num_movable)
            num_moves = max(_MIN_PERTURBATION_MOVES, share)
        for _ in range(num_moves):
            placement = self._neighborhood.draw_move(placement, generator)
        return placement

    def _evaluate(self, measurement: Measurement) -> Value:
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
