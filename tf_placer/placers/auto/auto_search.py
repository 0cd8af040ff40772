"""The search in simulation: from the best of many starts, by annealing on all cores.

An ablation (commit cfc69f1) gives the step time of three models after 10 s without each part, as a
multiple of the time with it: refinement inside groups 1.16, colocation groups only after clusters
1.11, the second core 1.07, moves that begin on the critical path 1.06, other parts 1.02 to 1.03.
On shuffled graphs of up to 96,000 operations with one known good placement, the result was within
2 % of that placement, or better, in 7.5 s (commit 2dba274). Where weights fill 85 to 98 % of all
memory, the search found a placement that fits whenever an integer program did, in 200 of 200
problems (commit 9452bb4).
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterable

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.metis import metis_groups
from tf_placer.placers.auto.annealing import Annealer
from tf_placer.placers.auto.annealing_schedule import AnnealingSchedule
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.placers.auto.exhaustive import ExhaustiveSearch
from tf_placer.placers.auto.levels import Level, make_levels
from tf_placer.placers.auto.simulated_starts import SimulatedStarts
from tf_placer.placers.auto.starts import propose_starts
from tf_placer.placers.heuristics.linear_clusters import find_linear_clusters
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = ["AutoProgress", "AutoResult", "auto_search"]

_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True)
class _SearchLimits:
    """The limits of a search that are no settings.

    All chains run in parallel for an iteration, some steps each, and then wait for each other.

    Attributes:
        operations_per_iteration: operations that a chain simulates in an iteration, at most.
        operations_per_draw: operations whose simulation takes as long as drawing a move.
        min_steps_per_iteration: even in a large graph, so that threads do not idle at the barrier.
        small_budget_steps_per_iteration: even if that leaves fewer iterations than
            `target_iterations`, unless `operations_per_iteration` allows fewer.
        target_iterations: iterations that a budget of simulated placements is divided into, so
            that chains cool slowly.
        near_bound_tolerance: distance from the lower bound at which a search ends at a
            synchronization point, as a share of the bound.
        max_exhaustive_placements: the largest problem to search exhaustively.
        max_log_placements: natural logarithm of a number of placements that needs no exact count.
    """

    operations_per_iteration: int = 500_000
    operations_per_draw: int = 100
    min_steps_per_iteration: int = 4
    small_budget_steps_per_iteration: int = 50
    target_iterations: int = 200
    near_bound_tolerance: float = 0.01
    max_exhaustive_placements: float = 1e8
    max_log_placements: float = 30.0


_LIMITS = _SearchLimits()


@dataclasses.dataclass(frozen=True)
class AutoProgress:
    """The progress of a search.

    Attributes:
        best: the best placement so far.
        share: the used share of the budget, from 0 to 1.
        num_simulated: placements simulated so far.
        elapsed_secs: time so far.
    """

    best: Candidate
    share: float
    num_simulated: int
    elapsed_secs: float


@dataclasses.dataclass(frozen=True, eq=False)
class AutoResult:
    """The result of a search.

    Attributes:
        best: the best placement.
        finalists: the best of every chain and the best start, best first, none twice.
        starts: for each name of a start its best placement, best first.
        lower_bound_secs: a lower bound of the step time of any placement.
        num_simulated: placements simulated, repeats included.
        elapsed_secs: the duration of the search.
        is_near_bound: whether it ended because no placement is better by more than 1 %.
        is_optimal: whether the best placement is proven to be optimal, by exhaustive search or
            because it takes no longer than the lower bound.
        interrupted: whether it was ended from the keyboard.
    """

    best: Candidate
    finalists: tuple[Candidate, ...]
    starts: tuple[tuple[str, Candidate], ...]
    lower_bound_secs: float
    num_simulated: int
    elapsed_secs: float
    is_near_bound: bool
    is_optimal: bool
    interrupted: bool


def auto_search(
    problem: PlacementProblem,
    groups: GroupGraph,
    *,
    max_secs: float,
    max_simulated: float = math.inf,
    stop_secs: float = 0.0,
    config: AutoConfig | None = None,
    starts: Iterable[tuple[str, np.ndarray]] = (),
    clusters: np.ndarray | None = None,
    seed: int = 0,
    threads: int | None = None,
    report: Callable[[AutoProgress], None] | None = None,
) -> AutoResult:
    """Searches for the fastest placement that fits.

    Args:
        problem: the placement problem.
        groups: its groups.
        max_secs: the time limit. The first start is always simulated.
        max_simulated: the most placements to simulate. Where this ends the search, the same
            seed gives the same placement on the same number of threads.
        stop_secs: the search ends once a placement that fits has a step of at most this time.
        config: settings of the search; None for the defaults.
        starts: names and placements, int32 [num_groups], beside those of the heuristics.
        clusters: int [num_groups], the coarse group of each group, if the starts are the result of
            a search with coarse groups: heuristics and slow cooling would lead away from them. If
            None, METIS cuts the graph into clusters that move as one.
        seed: seeds everything random.
        threads: chains that anneal at once; None for one per core that this process may use.
        report: called with the progress after each iteration.

    Returns:
        The best placement, which is never worse than any start.

    Raises:
        ValueError: the budget is not positive, or an argument does not fit the problem.
    """
    if not max_secs > 0 or not max_simulated >= 1:
        raise ValueError(f"the budget must be positive, not {max_secs} s and {max_simulated}")
    threads = threads or len(os.sched_getaffinity(0))
    search = _Search(
        problem, groups, config or AutoConfig(), clusters, stop_secs, seed, threads, report
    )
    return search.run(starts, max_secs, max_simulated)


class _Search:
    def __init__(
        self,
        problem: PlacementProblem,
        groups: GroupGraph,
        config: AutoConfig,
        clusters: np.ndarray | None,
        stop_secs: float,
        seed: int,
        threads: int,
        report: Callable[[AutoProgress], None] | None,
    ) -> None:
        # The preparation counts: it takes seconds for graphs of many operations.
        self._start_secs = time.monotonic()
        self._problem, self._groups, self._clusters = problem, groups, clusters
        self._config, self._stop_secs = config, stop_secs
        self._seed, self._threads, self._report = seed, threads, report
        self._legal = legal_devices(problem)
        choices = self._legal.sum(axis=1)
        self._num_movable, self._num_single_moves = (
            int((choices > 1).sum()),
            int((choices - 1).sum()),
        )
        operations_per_step = problem.num_operations + _LIMITS.operations_per_draw
        self._max_steps_per_iteration = max(
            _LIMITS.min_steps_per_iteration,
            _LIMITS.operations_per_iteration // operations_per_step,
        )
        self._simulator = Simulator(problem, threads=threads)
        self._bound_secs = float(lower_bounds(problem).step_secs)
        self._num_simulated = 0
        self._simulating_secs = 0.0
        self._chains: list[Annealer] = []
        self._dropped: list[Annealer] = []
        self._starts = SimulatedStarts(
            *(self._simulate, self._progress, self._count_left, config.starts_share),
            self._report_state,
        )
        self._tried: list[Candidate] = []
        self._all_tried = self._is_near_bound = False
        self._exhaustive: ExhaustiveSearch | None = None

    def run(
        self, starts: Iterable[tuple[str, np.ndarray]], max_secs: float, max_simulated: float
    ) -> AutoResult:
        self._max_secs = max_secs
        is_limited = math.isfinite(max_simulated)
        self._max_simulated = math.floor(max_simulated) if is_limited else math.inf
        interrupted = False
        try:
            self._simulate_starts(starts)
            self._try_promising()
            if not self._all_tried:
                self._anneal()
        except KeyboardInterrupt:
            if not self._starts.found:
                raise
            interrupted = True
        best_starts = self._starts.best()
        every = [best_starts[0][1], *self._list_chain_bests(), *self._tried]
        finalists = {
            found.placement.tobytes(): found for found in sorted(every, key=lambda f: f.rank)
        }
        return AutoResult(
            best=next(iter(finalists.values())),
            finalists=tuple(finalists.values()),
            starts=best_starts,
            lower_bound_secs=self._bound_secs,
            num_simulated=self._count_simulated(),
            elapsed_secs=self._get_elapsed_secs(),
            is_near_bound=self._is_near_bound,
            is_optimal=self._all_tried or self._is_at_bound(next(iter(finalists.values()))),
            interrupted=interrupted,
        )

    def _simulate_starts(self, starts: Iterable[tuple[str, np.ndarray]]) -> None:
        self._starts.add(starts)
        if self._clusters is None or not self._starts.found:
            heuristics = propose_starts(self._problem, self._groups, self._seed)
            self._starts.add(
                start for start in heuristics if self._config.starts in ("all", start[0])
            )
        if self._starts.found[0][0].excess_bytes:
            self._starts.make_fit(
                self._problem, self._legal, count=self._threads * 2, seed=self._seed
            )

    def _simulate(self, placements: np.ndarray) -> list[Candidate]:
        start_secs = time.monotonic()
        found = simulate_candidates(self._problem, self._simulator, placements)
        self._simulating_secs += time.monotonic() - start_secs
        self._num_simulated += len(placements)
        return found

    # Exhaustive search.

    def _count_placements(self) -> float:
        # The number of placements may exceed the range of a float.
        log_count = np.log(self._legal.sum(axis=1)).sum()
        return round(math.exp(log_count)) if log_count < _LIMITS.max_log_placements else math.inf

    def _try_promising(self) -> None:
        """Simulates every placement that may be better, if there is time for all of them."""
        if self._count_placements() > _LIMITS.max_exhaustive_placements:
            return
        if self._exhaustive is None:
            self._exhaustive = ExhaustiveSearch(self._problem, self._simulator, self._seed)
        best = self._state().best
        limit_secs = math.inf if best.excess_bytes else best.step_secs
        count, secs = self._exhaustive.estimate_effort(limit_secs)
        left_secs = self._config.exhaustive_share * (self._max_secs - self._get_elapsed_secs())
        if secs > left_secs or self._count_simulated() + count > self._max_simulated:
            return
        for found, number in self._exhaustive.run(limit_secs):
            self._num_simulated += number
            if found is not None:
                self._tried = [found]
            self._report_state()
            if self._progress() >= 1.0:
                return
        self._all_tried = not self._state().best.excess_bytes

    # Annealing.

    def _anneal(self) -> None:
        if self._clusters is None:
            clusters = [
                metis_groups(self._groups, count, self._seed)
                for count in self._config.clusters
                if count * 2 <= self._groups.num_groups
            ]
            layers, num_groups = self._groups.layers, self._groups.num_groups
            if len(np.unique(layers)) < num_groups:
                known = [layers]
            else:
                # The problem has no layers, so each group counts as its own layer. Partitions into
                # linear clusters that are mostly single groups do not help either.
                lines = find_linear_clusters(self._groups)
                known = [line for line in lines if 2 * len(np.unique(line)) <= num_groups]
            levels = make_levels(self._groups, [*known, *clusters])
        else:
            # The search with coarse groups has already placed whole layers.
            levels = make_levels(self._groups, [self._clusters])
        self._chains = [
            self._make_chain(levels, start, number)
            for number, start in enumerate(self._first_placements())
        ]
        schedule = AnnealingSchedule(
            self._config,
            begin=self._progress(),
            is_halving=len(self._chains) > self._threads,
            is_refinement=self._clusters is not None,
            num_expected=self._estimate_left(),
            num_movable=self._num_movable,
            num_single_moves=self._num_single_moves,
        )
        synchronization_points = list(self._config.synchronization_points)
        with concurrent.futures.ThreadPoolExecutor(self._threads) as executor:
            while self._progress() < 1.0 and not self._is_over():
                share = self._progress()
                if len(self._chains) > self._threads and share >= schedule.halving_end:
                    self._keep_best_chains()
                if synchronization_points and share >= synchronization_points[0]:
                    synchronization_points.pop(0)
                    # The better the best placement is, the fewer others may still be better.
                    self._try_promising()
                    # A small problem may still be searched exhaustively later.
                    self._is_near_bound = (
                        self._count_placements() > _LIMITS.max_exhaustive_placements
                        and self._is_at_bound(self._state().best, _LIMITS.near_bound_tolerance)
                    )
                    if self._all_tried or self._is_near_bound:
                        break
                    best = min((chain.best for chain in self._chains), key=lambda f: f.rank)
                    for chain in self._chains:
                        chain.restart(best)
                # An iteration depends neither on the other chains nor on the time, so that the
                # result is reproducible.
                left, count = self._count_left(), len(self._chains)
                most = min(
                    self._max_steps_per_iteration,
                    self._max_simulated / _LIMITS.target_iterations // count,
                )
                least = min(_LIMITS.small_budget_steps_per_iteration, self._max_steps_per_iteration)
                steps = max(least, most)
                runs = [
                    executor.submit(
                        chain.run,
                        int(steps),
                        schedule.find_parameters(share, number),
                        # The first chains get the remainder of the division.
                        max_simulated=(left + count - 1 - number) / count,
                    )
                    for number, chain in enumerate(self._chains)
                ]
                for run in runs:
                    run.result()
                self._report_state()

    def _first_placements(self) -> list[Candidate]:
        """Lists the first placements of the chains, at least one for each thread.

        The best start does not always lead to the best placement, so the chains of several
        heuristics compete by successive halving.
        """
        if self._clusters is not None:
            best = [found for found, _ in self._starts.found[: self._threads]]
        else:
            every = [found for _, found in self._starts.best()]
            alike = [
                found for found in every if bool(found.excess_bytes) == bool(every[0].excess_bytes)
            ]
            best = alike[: max(self._threads, self._config.halving_starts)]
        return best + best[-1:] * (self._threads - len(best))

    def _keep_best_chains(self) -> None:
        """Keeps the chains with the best placements, one for each thread, and drops the others."""
        self._chains.sort(key=lambda chain: chain.best.rank)
        self._chains, self._dropped = self._chains[: self._threads], self._chains[self._threads :]
        for chain in self._chains:
            chain.restart(chain.best)

    def _estimate_left(self) -> float:
        """Estimates how many placements can still be simulated."""
        each_secs = self._simulating_secs / max(1, self._num_simulated)
        left_secs = max(0.0, self._max_secs - self._get_elapsed_secs())
        by_time = left_secs / each_secs if each_secs > 0 else math.inf
        return min(by_time, self._count_left())

    def _make_chain(self, levels: tuple[Level, ...], start: Candidate, number: int) -> Annealer:
        return Annealer(
            self._problem,
            self._simulator,
            self._legal,
            levels,
            start,
            seed=self._seed * 1009 + number,
            follows_critical_path=self._config.critical_path,
        )

    def _is_over(self) -> bool:
        """Tells whether no better placement can exist, or none is wanted."""
        best = self._state().best
        is_good = not best.excess_bytes and best.step_secs <= self._stop_secs
        return is_good or not self._num_movable or self._is_at_bound(best)

    def _is_at_bound(self, found: Candidate, tolerance: float = _ROUNDING) -> bool:
        return not found.excess_bytes and found.step_secs <= self._bound_secs * (1.0 + tolerance)

    def _report_state(self) -> None:
        if self._report is not None:
            self._report(self._state())

    def _state(self) -> AutoProgress:
        found = [*self._list_chain_bests(), self._starts.found[0][0], *self._tried]
        return AutoProgress(
            min(found, key=lambda f: f.rank),
            self._progress(),
            self._count_simulated(),
            self._get_elapsed_secs(),
        )

    def _count_simulated(self) -> int:
        chains = [*self._chains, *self._dropped]
        return self._num_simulated + sum(chain.num_simulated for chain in chains)

    def _list_chain_bests(self) -> list[Candidate]:
        return [chain.best for chain in [*self._chains, *self._dropped]]

    def _count_left(self) -> float:
        """Counts the placements that may still be simulated."""
        return self._max_simulated - self._count_simulated()

    def _progress(self) -> float:
        by_time = self._get_elapsed_secs() / self._max_secs
        return min(1.0, max(by_time, self._count_simulated() / self._max_simulated))

    def _get_elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs
