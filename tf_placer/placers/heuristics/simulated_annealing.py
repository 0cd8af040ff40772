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

_FIRST_COOLING = 800
# The last temperature of a cooling by the first.
_COOLED = 0.01
# Of the last so many moves for the worse, the first temperature is that share's.
_REMEMBERED = 256
_QUANTILE = 0.1
# Apart from what says which move is proposed.
_STREAM = 1


class SimulatedAnnealing(LocalSearch):
    """Takes moves for the worse too, the rarer the worse they are and the cooler it is.

    A move that makes the step longer by the factor r is taken with the probability r ** (-1 / T).
    The temperature T falls geometrically to a hundredth in 800 moves; then it starts again from
    the best placement so far, with twice the moves, and so on, as the number of moves to come is
    not known. What it falls from is measured: the logarithm of the factor that a tenth of the last
    256 moves for the worse stayed below.

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
        self._increases: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)
        self._highest = 0.0
        self._age = 0
        self._cooling = _FIRST_COOLING

    @property
    def temperature(self) -> float:
        """What a move for the worse is judged by; 0 before there was one."""
        return self._highest * _COOLED ** (self._age / self._cooling)

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Judges placements one after the other; see `Placer.observe`."""
        super().observe(placements, measurements)
        if self._increases:
            self._highest = float(np.quantile(self._increases, _QUANTILE))

    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        if value <= current or self._takes_worse(value, current):
            self._take(placement, value)
        self._age += 1
        if self._age == self._cooling:
            self._age = 0
            self._cooling *= 2
            self._take(*self.best)

    def _takes_worse(self, value: Value, current: Value) -> bool:
        """Says whether a move for the worse is taken; never one from what runs to what does not."""
        if value[0] or not current[1]:
            return False
        increase = math.log(value[1] / current[1])
        self._increases.append(increase)
        temperature = self.temperature
        if not temperature:
            return False
        draw = np.random.default_rng([self.seed, self._num_observed, _STREAM]).random()
        return bool(draw < math.exp(-increase / temperature))
