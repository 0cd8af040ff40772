"""The search in simulation as a placer: what it finds is measured, and corrects the costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.auto.auto_search import AutoResult
from tf_placer.auto.cost_fit import CostFactors, fit_factors, with_factors
from tf_placer.auto.found import Found
from tf_placer.auto.refined_search import COARSE_START, refined_search
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["AutoPlacer"]

# The first search may take half of the time, each later one a sixth.
_MAX_ROUNDS = 4
_FIRST_SHARE, _LATER_SHARE = 1 / 2, 1 / 6
# How many placements of a search are worth measuring.
_FIRST_CANDIDATES, _LATER_CANDIDATES = 6, 3
# Two placements that differ in less than this share of the work are one candidate.
_LEAST_DIFFERENCE = 0.02
# A placement is measured only if it may be the fastest were the costs wrong by so many deviations.
# A few measurements may agree with the costs by chance.
_DEVIATIONS, _LEAST_DEVIATION = 2.0, 0.05
# A search that is shorter finds nothing.
_LEAST_SECS = 0.1


class AutoPlacer(Placer):
    """Searches in simulation, has the best placements measured, corrects the costs, and goes on.

    A search in simulation runs when all that the one before proposed is measured. Candidates are
    the best placement, that of coarse groups, in case the costs of many small transfers are wrong,
    the best of each chain and the best starts, as long as they differ. Later
    searches start from what was measured and use the costs that explain it best; what they find is
    proposed only if it may be faster than the best measured, given how wrong the costs are. It ends
    when there is no such placement.

    What others had measured can be shown to it before it is first asked: it corrects the costs by
    that, too, starts from it, and proposes only what may be faster.

    Attributes:
        factors: the correction of the costs so far; None before anything was measured.
        search_secs: seconds for all searches in simulation together, at most.
        left_secs: says how many seconds a search in simulation may take now.
    """

    name = "auto"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        problem: PlacementProblem,
        search_secs: float = 60.0,
        max_simulated: int | None = None,
    ) -> None:
        """Makes the placer; it searches when it is first asked.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: what everything costs.
            search_secs: seconds for all searches in simulation together, at most.
            max_simulated: how many placements to simulate in all, in place of a time: then the same
                measurements lead to the same proposals, on the same number of cores.
        """
        super().__init__(groups, legal, seed=seed)
        self._problem = problem
        self.search_secs = search_secs
        self.left_secs: Callable[[], float] = lambda: math.inf
        self._max_simulated = max_simulated
        self._work = groups.work / max(float(groups.work.sum()), 1e-300)
        self._candidates: list[np.ndarray] | None = None
        self._round = 0
        self._measured: dict[bytes, tuple[np.ndarray, float | None]] = {}
        self.factors: CostFactors | None = None

    def propose(self, count: int) -> np.ndarray:
        """The next candidates; see `Placer.propose`."""
        if self._candidates is None:
            self._candidates = self._search()
        waiting = [c for c in self._candidates if c.tobytes() not in self._measured]
        empty = np.zeros([0, self.groups.num_groups], np.int32)
        return np.concatenate([empty, *(row[None] for row in waiting)])[:count]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Remembers what was measured; see `Placer.observe`."""
        for placement, measurement in zip(placements, measurements, strict=True):
            placement = placement.astype(np.int32)
            self._measured[placement.tobytes()] = (placement, measurement.median_secs)
        if self._candidates is not None and all(
            candidate.tobytes() in self._measured for candidate in self._candidates
        ):
            # Searched again when somebody asks.
            self._candidates = None

    def _search(self) -> list[np.ndarray]:
        """Candidates that were not measured, best first; none if the search is over."""
        if self._round >= _MAX_ROUNDS:
            return []
        known = [(row, secs) for row, secs in self._measured.values() if secs is not None]
        problem = self._problem
        if known:
            rows = np.stack([row for row, _ in known])
            self.factors = fit_factors(problem, rows, np.array([secs for _, secs in known]))
            problem = with_factors(problem, self.factors.compute, self.factors.transfer)
            logging.info(
                "costs corrected: operations x %s, transfers x %.2f, error %.1f %%",
                np.round(self.factors.compute, 2).tolist(),
                self.factors.transfer,
                100 * self.factors.deviation,
            )
        share, most = (
            (_LATER_SHARE, _LATER_CANDIDATES) if self._round else (_FIRST_SHARE, _FIRST_CANDIDATES)
        )
        max_secs, max_simulated = min(share * self.search_secs, self.left_secs()), math.inf
        if self._max_simulated is not None:
            max_secs, max_simulated = math.inf, max(1.0, share * self._max_simulated)
        if max_secs < _LEAST_SECS:
            return []
        result = refined_search(
            problem,
            self.groups,
            max_secs=max_secs,
            max_simulated=max_simulated,
            starts=[("measured", row) for row, _ in sorted(known, key=lambda pair: pair[1])],
            seed=self.seed + self._round,
        )
        self._round += 1
        found = self._distinct(result)
        if not known:
            return found[:most]
        assert self.factors is not None
        best_secs = min(secs for _, secs in known)
        if not found:
            return []
        simulated = Simulator(problem).simulate(np.stack(found)).step_secs
        doubt = np.exp(-_DEVIATIONS * max(self.factors.deviation, _LEAST_DEVIATION))
        hopeful = [
            row for row, secs in zip(found, simulated, strict=True) if secs * doubt < best_secs
        ]
        return hopeful[:most]

    def _distinct(self, result: AutoResult) -> list[np.ndarray]:
        """Placements that fit, differ and were not measured.

        The best and the best of coarse groups come first, which are worth a measurement however
        little is different; then the fastest.
        """
        first = [result.best, *(found for name, found in result.starts if name == COARSE_START)]
        others = [*result.finalists, *(found for _, found in result.starts)]
        chosen: list[np.ndarray] = []
        seen = [row for row, _ in self._measured.values()]

        def is_new(found: Found) -> bool:
            known = [*seen, *chosen]
            if found in first:
                return not any(np.array_equal(found.placement, row) for row in known)
            changed = [self._work[found.placement != row].sum() for row in known]
            return min(changed, default=1.0) > _LEAST_DIFFERENCE

        for found in [*first, *sorted(others, key=lambda each: each.rank)]:
            if not found.excess_bytes and is_new(found):
                chosen.append(found.placement)
        return chosen
