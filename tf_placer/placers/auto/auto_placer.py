"""The search in simulation as a placer, whose measured candidates correct the costs."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import FailureKind, Measurement
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.coarse_to_fine_search import COARSE_START, coarse_to_fine_search
from tf_placer.placers.auto.cost_fit import CostFactors, fit_factors, scale_costs
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator

__all__ = ["AutoPlacer"]

_MIN_SEARCH_SECS = 0.1
# Ten times as many placements are better by less than 1 %, and the costs are off by more than that.
_MIN_SIMULATED, _SIMULATED_PER_GROUP = 20_000, 50
# A few disturbed steps may have misled a fit whose factors differ more than this.
_DOUBTFUL_RATIO = 2.0
# Shares of the memory of devices to search within where nothing has run, because the memory of a
# step is only estimated; the share that is most likely both enough and not too little comes first.
_MEMORY_SHARES = (0.8, 0.65, 0.5, 0.9)


class AutoPlacer(Placer):
    """Searches in simulation, has the best placements measured, and searches with corrected costs.

    Each search in simulation makes one batch: the best placement, the best placement of coarse
    groups, in case the costs of many small transfers are wrong, the best of each chain, and the
    best starts, as long as they differ. Later searches start from the measured placements and use
    the costs that explain the measurements best; they propose a placement only if it may be faster
    than the best measured one, given the error of the costs. Where that leaves none of the first
    search, and the correction is large, the uncorrected costs have a turn. The placer ends when
    there is none, or when the candidates of corrected costs were not faster than those before.

    Where all measured placements ran out of memory, placements that leave a part of the memory free
    come first.

    Measurements made before the placer starts correct the costs, too, and their placements are
    starts of the first search.

    Attributes:
        factors: the correction of the costs so far; None before the first measurement.
    """

    name = "auto"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        problem: PlacementProblem,
        config: AutoConfig | None = None,
        max_simulated: int | None = None,
    ) -> None:
        """Makes the placer; it searches when proposals are requested.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: the placement problem with its costs.
            config: settings of the search; None for the defaults.
            max_simulated: placements to simulate in all, in place of a time limit: then the same
                measurements lead to the same proposals, on the same number of cores.

        Raises:
            ValueError: the problem allows a device for a group that `legal` forbids.
        """
        super().__init__(groups, legal, seed=seed)
        if (legal_devices(problem) & ~legal).any():
            raise ValueError("by the problem, groups may go where they are not to be placed")
        self._problem = problem
        self._config = config = config or AutoConfig()
        self.batch_size = config.first_candidates
        self._search_secs = config.search_secs
        self._left_secs: Callable[[], float] = lambda: math.inf
        self._max_simulated = max_simulated
        self._work = groups.work / max(float(groups.work.sum()), 1e-300)
        # Proposals do not change before the next measurement, so `propose` caches them.
        self._candidates: list[np.ndarray] | None = None
        self._batches = 0
        self._was_in_vain = self._ran_out_of_memory = self._lacked_time = False
        self._measured: dict[bytes, tuple[np.ndarray, float | None]] = {}
        self.factors: CostFactors | None = None

    def prepare(
        self,
        placements: np.ndarray,
        measurements: Sequence[Measurement],
        left_secs: Callable[[], float],
    ) -> None:
        """Learns from earlier measurements, and limits the search time; see `Placer.prepare`."""
        self._left_secs = left_secs
        share_secs = self._config.search_share * left_secs()
        self._search_secs = min(self._config.search_secs, share_secs)
        self._learn(placements, measurements)

    def propose(self, count: int) -> np.ndarray:
        """Proposes the candidates of the next search; see `Placer.propose`."""
        if self._candidates is None and count:
            self._candidates = self._search()
        empty = np.zeros([0, self.groups.num_groups], np.int32)
        return np.concatenate([empty, *(row[None] for row in self._candidates or ())])[:count]

    @property
    def lacks_time(self) -> bool:
        """True if there was no time for another search; see `Placer.lacks_time`."""
        return self._lacked_time

    def explain_end(self) -> str:
        """Explains why the placer has ended; see `Placer.explain_end`."""
        if self._batches >= self._config.rounds:
            return f"it has searched {self._batches} times"
        if self._was_in_vain:
            return "its last candidates, by corrected costs, were not faster"
        if self._lacked_time:
            return "there was no time for another search"
        return "it found no other placement that may be faster, given the error of the costs"

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Learns from a batch; see `Placer.observe`."""
        before_secs = self._find_best_secs()
        self._learn(placements, measurements)
        # The first batch has uncorrected costs.
        is_corrected = self._batches > 0 and math.isfinite(before_secs)
        self._was_in_vain = is_corrected and self._find_best_secs() >= before_secs
        self._batches += 1

    def _find_best_secs(self) -> float:
        """Finds the shortest measured step; infinity if nothing has run."""
        return min((s for _, s in self._measured.values() if s is not None), default=math.inf)

    def _learn(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        for placement, measurement in zip(placements, measurements, strict=True):
            placement = placement.astype(np.int32)
            self._measured[placement.tobytes()] = (placement, measurement.median_secs)
            failure = measurement.failure
            if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY:
                self._ran_out_of_memory = True
        known = [(row, secs) for row, secs in self._measured.values() if secs is not None]
        if known and len(placements):
            rows = np.stack([row for row, _ in known])
            secs = np.array([secs for _, secs in known])
            self.factors = fit_factors(self._problem, rows, secs)
            logging.info(
                "costs corrected: operations x %s, transfers x %.2f, error %.1f %%",
                np.round(self.factors.compute, 2).tolist(),
                self.factors.transfer,
                100 * self.factors.deviation,
            )
        self._candidates = None

    def _search(self) -> list[np.ndarray]:
        """Finds candidates that were not measured, best first; none if the search is over."""
        config, is_first = self._config, not self._batches
        if self._batches >= config.rounds or self._was_in_vain:
            return []
        share = config.first_share if is_first else config.later_share
        most = config.first_candidates if is_first else config.later_candidates
        max_secs = min(share * self._search_secs, self._left_secs())
        max_simulated = max(_MIN_SIMULATED, _SIMULATED_PER_GROUP * self.groups.num_groups)
        if self._max_simulated is not None:
            max_secs, max_simulated = math.inf, max(1, int(share * self._max_simulated))
        self._lacked_time = max_secs < _MIN_SEARCH_SECS
        if self._lacked_time:
            return []
        problem, factors = self._problem, self.factors
        if factors is not None:
            problem = scale_costs(problem, factors.compute, factors.transfer)
        known = [(row, secs) for row, secs in self._measured.values() if secs is not None]
        is_short = self._ran_out_of_memory and not known
        shares = [1.0, *(_MEMORY_SHARES if is_short else ())]
        search = functools.partial(
            coarse_to_fine_search,
            groups=self.groups,
            max_secs=max_secs / len(shares),
            max_simulated=max(1.0, max_simulated / len(shares)),
            config=config,
            seed=self.seed + self._batches,
        )
        result = search(
            problem,
            starts=[("measured", row) for row, _ in sorted(known, key=lambda pair: pair[1])],
        )
        found = self._choose_distinct(result)
        if is_short:
            starts = [("found", result.best.placement)]
            # The next batch leaves more free.
            smaller = [
                search(_scale_memory(problem, share ** (1 + self._batches)), starts=starts).best
                for share in _MEMORY_SHARES
            ]
            found = self._put_first(smaller, found)
        if known and found:
            assert factors is not None
            best_secs = self._find_best_secs()
            simulated = Simulator(problem).simulate(np.stack(found)).step_secs
            deviation = max(factors.deviation, config.least_deviation)
            doubt = math.exp(-config.deviations * deviation)
            found = [
                row for row, secs in zip(found, simulated, strict=True) if secs * doubt < best_secs
            ]
            max_secs = min(max_secs, self._left_secs())
            is_doubtful = is_first and factors.spread > _DOUBTFUL_RATIO
            if not found and is_doubtful and max_secs >= _MIN_SEARCH_SECS:
                search = functools.partial(search, max_secs=max_secs)
                return self._search_by_given_costs(search, known)[: config.later_candidates]
        return found[:most]

    def _search_by_given_costs(
        self, search: Callable[..., AutoResult], known: Sequence[tuple[np.ndarray, float]]
    ) -> list[np.ndarray]:
        """Finds candidates that are faster than the best measured placement by uncorrected costs.

        Otherwise one disturbed measurement before the search could end it.
        """
        fastest = min(known, key=lambda pair: pair[1])[0]
        found = self._choose_distinct(search(self._problem))
        if not found:
            return []
        simulator = Simulator(self._problem)
        before_secs, *secs = simulator.simulate(np.stack([fastest, *found])).step_secs
        return [row for row, each in zip(found, secs, strict=True) if each < before_secs]

    def _put_first(self, first: list[Candidate], others: list[np.ndarray]) -> list[np.ndarray]:
        """Lists candidates that fit, then other placements; none twice, and none measured."""
        rows = [*(each.placement for each in first if not each.excess_bytes), *others]
        unique = {row.astype(np.int32).tobytes(): row for row in rows}
        return [row for key, row in unique.items() if key not in self._measured]

    def _choose_distinct(self, result: AutoResult) -> list[np.ndarray]:
        """Lists placements that fit, differ and were not measured.

        The best placement and the best of coarse groups come first: they are worth a measurement
        even if they differ little from others. The fastest of the others follow.
        """
        first = [result.best, *(found for name, found in result.starts if name == COARSE_START)]
        others = [*result.finalists, *(found for _, found in result.starts)]
        chosen: list[np.ndarray] = []
        seen = [row for row, _ in self._measured.values()]

        def is_new(found: Candidate) -> bool:
            known = [*seen, *chosen]
            if found in first:
                return not any(np.array_equal(found.placement, row) for row in known)
            changed = [self._work[found.placement != row].sum() for row in known]
            return min(changed, default=1.0) > self._config.least_difference

        for found in [*first, *sorted(others, key=lambda each: each.rank)]:
            if not found.excess_bytes and is_new(found):
                chosen.append(found.placement)
        return chosen


def _scale_memory(problem: PlacementProblem, share: float) -> PlacementProblem:
    """Reduces the memory of all devices to a share."""
    devices = tuple(
        dataclasses.replace(device, memory_bytes=int(share * device.memory_bytes))
        for device in problem.devices
    )
    return dataclasses.replace(problem, devices=devices)
