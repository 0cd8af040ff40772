"""Hill climbing."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.heuristics.local_search import LocalSearch, Value

__all__ = ["HillClimbing"]

_MIN_PATIENCE = 16


class HillClimbing(LocalSearch):
    """Accepts every move that does not make the placement worse.

    After as many fruitless moves in a row as there are moves of a single group, it restarts from a
    perturbation of the best placement, by random moves of 3 % of the groups and at least 2: an
    iterated local search.

    References:
        Lourenço, Martin and Stützle, Iterated Local Search, Handbook of Metaheuristics, 2003.
    """

    name = "hill_climbing"
    _fruitless = 0

    def _judge(self, placement: np.ndarray, value: Value, current: Value) -> None:
        if value <= current:
            self._take(placement, value)
        self._fruitless = 0 if value < current else self._fruitless + 1
        if self._fruitless >= max(self.num_single_moves, _MIN_PATIENCE):
            self._fruitless = 0
            self._perturb()
