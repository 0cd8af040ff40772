"""The search in simulation: from the best of many starts, by annealing on all cores.

What each part is worth, as a factor on the step of three models after 10 s without it (commit
cfc69f1): refinement inside groups 1.16, colocation groups only after clusters 1.11, the second core
1.07, moves that begin on the critical path 1.06, all else 1.02 to 1.03. On shuffled graphs of up to
96,000 operations one good placement of which is known it was within 2 % of that, or beyond it, in
7.5 s (commit 2dba274). Where weights fill 85 to 98 % of all memory it fitted whenever an integer
program did, 200 times of 200 (commit 9452bb4).
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
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.chain_plans import ChainPlans
from tf_placer.placers.auto.exhaustive import ExhaustiveSearch
from tf_placer.placers.auto.found import Found, simulate_found
from tf_placer.placers.auto.levels import Level, make_levels
from tf_placer.placers.auto.simulated_starts import SimulatedStarts
from tf_placer.placers.auto.starts import starting_placements
from tf_placer.placers.heuristics.parallel_lines import parallel_lines
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = ["AutoProgress", "AutoResult", "auto_search"]

# What a chain does between two looks at the clock: as many steps as take as long as so many
# operations. Choosing a move takes as long as simulating some, which counts in a small graph.
_OPERATIONS_PER_TURN, _OPERATIONS_PER_MOVE = 500_000, 100
# Fewer steps do not keep a thread busy while others wait for theirs; so many do where nothing else
# says how many.
_LEAST_STEPS, _STEPS_PER_TURN = 4, 50
# Fewer turns than this do not cool slowly.
_TURNS = 200
# A search that is as near to the lower bound as this at a meeting is over: little is to be found.
_NEAR_BOUND, _ROUNDING = 0.01, 1e-9
# Up to how many placements those that may be better are all tried where there is time.
_MANY_PLACEMENTS = 1e8
_LOG_OF_TOO_MANY = 30.0


@dataclasses.dataclass(frozen=True)
class AutoProgress:
    """How far a search has come.

    Attributes:
        best: the best placement so far.
        share: how much of the budget is used, from 0 to 1.
        num_simulated: placements simulated so far.
        elapsed_secs: time so far.
    """

    best: Found
    share: float
    num_simulated: int
    elapsed_secs: float


@dataclasses.dataclass(frozen=True, eq=False)
class AutoResult:
    """What a search found.

    Attributes:
        best: the best placement.
        finalists: the best of every chain and the best start, best first, none twice.
        starts: the name and the best of the starts of each name, best first.
        lower_bound_secs: no placement takes less.
        num_simulated: placements simulated, repeats included.
        elapsed_secs: what the search took.
        is_near_bound: whether it ended because no placement is better by more than 1 %.
        is_optimal: whether it is certain that no placement is better: all that may be were tried,
            or it takes no longer than the lower bound.
        interrupted: whether it was ended from the keyboard.
    """

    best: Found
    finalists: tuple[Found, ...]
    starts: tuple[tuple[str, Found], ...]
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
    config: AutoConfig | None = None,
    starts: Iterable[tuple[str, np.ndarray]] = (),
    clusters: np.ndarray | None = None,
    seed: int = 0,
    threads: int | None = None,
    report: Callable[[AutoProgress], None] | None = None,
) -> AutoResult:
    """Searches for the fastest placement that fits.

    Args:
        problem: what is placed.
        groups: its groups.
        max_secs: when to end. The first start is always simulated.
        max_simulated: how many placements to simulate at most. Where this ends the search, the same
            seed gives the same placement on the same number of threads.
        config: how to search; None for the defaults.
        starts: names and placements, int32 [num_groups], beside those of the heuristics.
        clusters: int [num_groups], the coarse group of each, if the starts are what a search with
            these found: those of the heuristics, and a long cooling, would lead away from them.
            Without, METIS cuts the graph into clusters that moves take along.
        seed: of everything random.
        threads: how many chains anneal at once; as many as this process may use cores if None.
        report: called every now and then.

    Returns:
        The best placement, which is never worse than any start.

    Raises:
        ValueError: the budget is not positive, or an argument does not fit the problem.
    """
    if not max_secs > 0 or not max_simulated >= 1:
        raise ValueError(f"the budget must be positive, not {max_secs} s and {max_simulated}")
    threads = threads or len(os.sched_getaffinity(0))
    search = _Search(problem, groups, config or AutoConfig(), clusters, seed, threads, report)
    return search.run(starts, max_secs, max_simulated)


class _Search:
    def __init__(
        self,
        problem: PlacementProblem,
        groups: GroupGraph,
        config: AutoConfig,
        clusters: np.ndarray | None,
        seed: int,
        threads: int,
        report: Callable[[AutoProgress], None] | None,
    ) -> None:
        # Preparing counts: it takes seconds where there are many operations.
        self._start_secs = time.monotonic()
        self._problem, self._groups, self._clusters = problem, groups, clusters
        self._config = config
        self._seed, self._threads, self._report = seed, threads, report
        self._legal = legal_devices(problem)
        choices = self._legal.sum(axis=1)
        self._num_movable, self._num_single_moves = (
            int((choices > 1).sum()),
            int((choices - 1).sum()),
        )
        each = problem.num_operations + _OPERATIONS_PER_MOVE
        self._steps_per_turn = max(_LEAST_STEPS, _OPERATIONS_PER_TURN // each)
        self._simulator = Simulator(problem, threads=threads)
        self._bound_secs = float(lower_bounds(problem).step_secs)
        self._num_simulated = 0
        self._simulating_secs = 0.0
        self._chains: list[Annealer] = []
        self._dropped: list[Annealer] = []
        self._starts = SimulatedStarts(
            self._simulate, self._progress, self._left, config.starts_share
        )
        self._tried: list[Found] = []
        self._all_tried = self._is_near_bound = False
        self._exhaustive: ExhaustiveSearch | None = None

    def run(
        self, starts: Iterable[tuple[str, np.ndarray]], max_secs: float, max_simulated: float
    ) -> AutoResult:
        self._max_secs = max_secs
        # Half a placement cannot be simulated.
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
        every = [best_starts[0][1], *self._found_by_chains(), *self._tried]
        finalists = {
            found.placement.tobytes(): found for found in sorted(every, key=lambda f: f.rank)
        }
        return AutoResult(
            best=next(iter(finalists.values())),
            finalists=tuple(finalists.values()),
            starts=best_starts,
            lower_bound_secs=self._bound_secs,
            num_simulated=self._simulated(),
            elapsed_secs=self._elapsed_secs(),
            is_near_bound=self._is_near_bound,
            is_optimal=self._all_tried or self._is_at_bound(next(iter(finalists.values()))),
            interrupted=interrupted,
        )

    def _simulate_starts(self, starts: Iterable[tuple[str, np.ndarray]]) -> None:
        self._starts.add(starts)
        if self._clusters is None or not self._starts.found:
            heuristics = starting_placements(self._problem, self._groups, self._seed)
            self._starts.add(
                start for start in heuristics if self._config.starts in ("all", start[0])
            )
        if self._starts.found[0][0].excess_bytes:
            self._starts.make_fit(
                self._problem, self._legal, count=self._threads * 2, seed=self._seed
            )

    def _simulate(self, placements: np.ndarray) -> list[Found]:
        start_secs = time.monotonic()
        found = simulate_found(self._problem, self._simulator, placements)
        self._simulating_secs += time.monotonic() - start_secs
        self._num_simulated += len(placements)
        return found

    # Few placements.

    def _num_placements(self) -> float:
        # There may be far more than a float can hold.
        log_count = np.log(self._legal.sum(axis=1)).sum()
        return round(math.exp(log_count)) if log_count < _LOG_OF_TOO_MANY else math.inf

    def _try_promising(self) -> None:
        """Simulates every placement that may be better, if there is time for that."""
        if self._num_placements() > _MANY_PLACEMENTS:
            return
        if self._exhaustive is None:
            self._exhaustive = ExhaustiveSearch(self._problem, self._simulator, self._seed)
        best = self._state().best
        limit_secs = math.inf if best.excess_bytes else best.step_secs
        count, secs = self._exhaustive.expected(limit_secs)
        left_secs = self._config.exhaustive_share * (self._max_secs - self._elapsed_secs())
        if secs > left_secs or self._simulated() + count > self._max_simulated:
            return
        for found, number in self._exhaustive.run(limit_secs):
            self._num_simulated += number
            if found is not None:
                self._tried = [found]
            if self._report is not None:
                self._report(self._state())
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
                # Nobody knows layers: every group is one. Many lines may be single groups, too.
                lines = parallel_lines(self._groups)
                known = [line for line in lines if 2 * len(np.unique(line)) <= num_groups]
            levels = make_levels(self._groups, [*known, *clusters])
        else:
            # Whole layers have found their places by then.
            levels = make_levels(self._groups, [self._clusters])
        self._chains = [
            self._make_chain(levels, start, number)
            for number, start in enumerate(self._first_placements())
        ]
        plans = ChainPlans(
            self._config,
            begin=self._progress(),
            is_race=len(self._chains) > self._threads,
            is_refinement=self._clusters is not None,
            num_expected=self._expected(),
            num_movable=self._num_movable,
            num_single_moves=self._num_single_moves,
        )
        meetings = list(self._config.meetings)
        with concurrent.futures.ThreadPoolExecutor(self._threads) as executor:
            while self._progress() < 1.0 and not self._is_over():
                share = self._progress()
                if len(self._chains) > self._threads and share >= plans.race_end:
                    self._end_race()
                if meetings and share >= meetings[0]:
                    meetings.pop(0)
                    # The better the best is, the fewer may be better still.
                    self._try_promising()
                    # Of few placements all may yet be tried.
                    self._is_near_bound = (
                        self._num_placements() > _MANY_PLACEMENTS
                        and self._is_at_bound(self._state().best, _NEAR_BOUND)
                    )
                    if self._all_tried or self._is_near_bound:
                        break
                    best = min((chain.best for chain in self._chains), key=lambda f: f.rank)
                    for chain in self._chains:
                        chain.restart(best)
                # Nothing within a turn depends on the other chains, or on the time.
                left, count = self._left(), len(self._chains)
                most = min(self._steps_per_turn, self._max_simulated / _TURNS // count)
                steps = max(min(_STEPS_PER_TURN, self._steps_per_turn), most)
                turns = [
                    executor.submit(
                        chain.run,
                        int(steps),
                        plans.plan(share, number),
                        # What does not go into equal shares is for the first.
                        max_simulated=(left + count - 1 - number) / count,
                    )
                    for number, chain in enumerate(self._chains)
                ]
                for turn in turns:
                    turn.result()
                if self._report is not None:
                    self._report(self._state())

    def _first_placements(self) -> list[Found]:
        """Lists where chains begin, one for each thread at least.

        Which start leads furthest is not known before it was tried: those of several heuristics
        race.
        """
        if self._clusters is not None:
            best = [found for found, _ in self._starts.found[: self._threads]]
        else:
            every = [found for _, found in self._starts.best()]
            alike = [
                found for found in every if bool(found.excess_bytes) == bool(every[0].excess_bytes)
            ]
            best = alike[: max(self._threads, self._config.racing_starts)]
        return best + best[-1:] * (self._threads - len(best))

    def _end_race(self) -> None:
        """Has the chains that came furthest go on, one for each thread."""
        self._chains.sort(key=lambda chain: chain.best.rank)
        self._chains, self._dropped = self._chains[: self._threads], self._chains[self._threads :]
        for chain in self._chains:
            chain.restart(chain.best)

    def _expected(self) -> float:
        """Estimates how many placements can still be simulated."""
        each_secs = self._simulating_secs / max(1, self._num_simulated)
        left_secs = max(0.0, self._max_secs - self._elapsed_secs())
        by_time = left_secs / each_secs if each_secs > 0 else math.inf
        return min(by_time, self._left())

    def _make_chain(self, levels: tuple[Level, ...], start: Found, number: int) -> Annealer:
        return Annealer(
            self._problem,
            self._simulator,
            self._legal,
            levels,
            start,
            seed=self._seed * 1009 + number,
            looks=self._config.critical_path,
        )

    def _is_over(self) -> bool:
        """Says whether nothing better can be found."""
        return not self._num_movable or self._is_at_bound(self._state().best)

    def _is_at_bound(self, found: Found, tolerance: float = _ROUNDING) -> bool:
        return not found.excess_bytes and found.step_secs <= self._bound_secs * (1.0 + tolerance)

    def _state(self) -> AutoProgress:
        found = [*self._found_by_chains(), self._starts.found[0][0], *self._tried]
        return AutoProgress(
            min(found, key=lambda f: f.rank),
            self._progress(),
            self._simulated(),
            self._elapsed_secs(),
        )

    def _simulated(self) -> int:
        chains = [*self._chains, *self._dropped]
        return self._num_simulated + sum(chain.num_simulated for chain in chains)

    def _found_by_chains(self) -> list[Found]:
        return [chain.best for chain in [*self._chains, *self._dropped]]

    def _left(self) -> float:
        """Says how many placements may still be simulated."""
        return self._max_simulated - self._simulated()

    def _progress(self) -> float:
        by_time = self._elapsed_secs() / self._max_secs
        return min(1.0, max(by_time, self._simulated() / self._max_simulated))

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs
