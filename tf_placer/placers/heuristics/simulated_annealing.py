"""Simulated annealing."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.heuristics.local_search import LocalSearch, Value
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["SimulatedAnnealing"]

_MOVES_OF_FIRST_COOLING = 800
_LAST_TO_FIRST_TEMPERATURE = 0.01
_NUM_REMEMBERED_INCREASES = 256
_FIRST_TEMPERATURE_QUANTILE = 0.1
# Makes the random numbers of acceptance independent of those of the proposals.
_ACCEPTANCE_STREAM = 1


class SimulatedAnnealing(LocalSearch):
    """Accepts worse placements with a probability that falls with the temperature.

    A move that makes the step longer by the factor r is accepted with the probability
    r ** (-1 / T). The temperature T falls geometrically to a hundredth in 800 moves; then it starts
    again from the best placement so far, with twice as many moves, and so on, because the number
    of moves to come is not known. The first temperature is measured: it is the 10 % quantile of
    the logarithms of the factors of the last 256 moves that made the step longer.

    References:
        Kirkpatrick, Gelatt and Vecchi, Optimization by Simulated Annealing, Science, 1983.
    """

    name = "simulated_annealing"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        problem: PlacementProblem | None = None,
    ) -> None:
        """Makes a placer; see `LocalSearch`."""
        super().__init__(groups, legal, seed=seed, problem=problem)
        self._increases: collections.deque[float] = collections.deque(
            maxlen=_NUM_REMEMBERED_INCREASES
        )
        self._first_temperature = 0.0
        self._num_moves = 0
        self._moves_of_cooling = _MOVES_OF_FIRST_COOLING

    @property
    def temperature(self) -> float:
        """The temperature of the next move; 0 before the first worse placement."""
        share = self._num_moves / self._moves_of_cooling
        return self._first_temperature * _LAST_TO_FIRST_TEMPERATURE**share

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Judges placements one after the other; see `Placer.observe`."""
        super().observe(placements, measurements)
        if self._increases:
            quantile = np.quantile(self._increases, _FIRST_TEMPERATURE_QUANTILE)
            self._first_temperature = float(quantile)

    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        if value <= current or self._accept_worse(value, current):
            self._take(placement, value)
        self._num_moves += 1
        if self._num_moves == self._moves_of_cooling:
            self._num_moves = 0
            self._moves_of_cooling *= 2
            self._take(*self.best)

    def _accept_worse(self, value: Value, current: Value) -> bool:
        """Decides on a worse placement, which is never accepted if it fails."""
        if value[0] or not current[1]:
            return False
        increase = math.log(value[1] / current[1])
        self._increases.append(increase)
        temperature = self.temperature
        if not temperature:
            return False
        stream = [self.seed, self._num_observed, _ACCEPTANCE_STREAM]
        draw = np.random.default_rng(stream).random()
        return bool(draw < math.exp(-increase / temperature))
