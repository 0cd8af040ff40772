"""The search in simulation: from the best of many starts, by annealing on all cores."""

from __future__ import annotations

import bisect
import concurrent.futures
import dataclasses
import itertools
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.metis import metis_groups
from tf_placer.auto.annealing import Annealer, Found
from tf_placer.auto.levels import make_levels
from tf_placer.auto.repair import MemoryRepair
from tf_placer.auto.starts import starting_placements
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.incremental import IncrementalSimulator
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator

__all__ = ["AutoProgress", "AutoResult", "auto_search"]

# What the starts may take of the time.
_STARTS_SHARE = 0.25
# Temperatures, as shares of the step time.
_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 0.02, 2e-5
# Where the chains start again, in turns: how far the next optimum is differs from graph to graph.
_AGAIN_TEMPERATURES = (0.01, 0.002)
# How often moves take clusters at first; from the middle on it falls to 0.
_COARSE_SHARE = 0.9
# How many clusters the graph is cut into where there are more groups and nobody knows better.
_CLUSTERS = (32, 128, 512)
_STEPS_PER_TURN = 50
# When all chains go on from the best, warmer again, as shares of the search.
_MEETINGS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Every other chain starts again with this share of the groups anywhere.
_KICKED_SHARE = 0.03
# Placements that were tried to make one start fit.
_REPAIRS = 20
_START_BATCH = 16
# Up to how many placements all are tried.
_FEW_PLACEMENTS = 20_000
_LOG_OF_TOO_MANY = 30.0
_BATCH = 512


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
        is_optimal: whether it is certain that no placement is better: all were tried, or it takes
            no longer than the lower bound.
        interrupted: whether it was ended from the keyboard.
    """

    best: Found
    finalists: tuple[Found, ...]
    starts: tuple[tuple[str, Found], ...]
    lower_bound_secs: float
    num_simulated: int
    elapsed_secs: float
    is_optimal: bool
    interrupted: bool


def auto_search(
    problem: PlacementProblem,
    groups: GroupGraph,
    *,
    max_secs: float,
    max_simulated: float = math.inf,
    memberships: Sequence[np.ndarray] = (),
    starts: Iterable[tuple[str, np.ndarray]] = (),
    seed: int = 0,
    threads: int | None = None,
    report: Callable[[AutoProgress], None] | None = None,
) -> AutoResult:
    """Searches for the fastest placement that fits.

    Args:
        problem: what is placed.
        groups: its groups.
        max_secs: when to end, counted from when the simulator is compiled, which happens once per
            machine. The first start is always simulated.
        max_simulated: how many placements to simulate at most. Where this ends the search, the same
            seed gives the same placement on the same number of threads.
        memberships: int [num_groups] each, clusters of groups that belong together; if there are
            none, the graph is cut into some by METIS.
        starts: names and placements, int32 [num_groups], beside those of the heuristics.
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
    search = _Search(
        problem, groups, memberships, seed, threads or len(os.sched_getaffinity(0)), report
    )
    return search.run(starts, max_secs, max_simulated)


class _Search:
    def __init__(
        self,
        problem: PlacementProblem,
        groups: GroupGraph,
        memberships: Sequence[np.ndarray],
        seed: int,
        threads: int,
        report: Callable[[AutoProgress], None] | None,
    ) -> None:
        self._problem, self._groups, self._memberships = problem, groups, memberships
        self._seed, self._threads, self._report = seed, threads, report
        self._legal = legal_devices(problem)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        self._simulator = Simulator(problem, threads=threads)
        self._bound_secs = float(lower_bounds(problem).step_secs)
        self._num_simulated = 0
        self._chains: list[Annealer] = []
        self._starts: list[tuple[Found, str]] = []
        self._tried: list[Found] = []
        self._all_tried = False
        self._random = np.random.default_rng(seed)
        self._incremental = IncrementalSimulator(problem)
        self._compile()
        self._start_secs = time.monotonic()

    def run(
        self, starts: Iterable[tuple[str, np.ndarray]], max_secs: float, max_simulated: float
    ) -> AutoResult:
        self._max_secs, self._max_simulated = max_secs, max_simulated
        interrupted = False
        try:
            self._simulate_starts(starts)
            if self._num_placements() <= min(_FEW_PLACEMENTS, max_simulated):
                self._try_all()
            else:
                self._anneal()
        except KeyboardInterrupt:
            if not self._starts:
                raise
            interrupted = True
        best_starts = self._best_starts()
        every = [best_starts[0][1], *(chain.best for chain in self._chains), *self._tried]
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
            is_optimal=self._all_tried or self._is_at_bound(next(iter(finalists.values()))),
            interrupted=interrupted,
        )

    def _compile(self) -> None:
        """Has compiled, once and for all, what searches: no part of the search."""
        placement = self._legal.argmax(axis=1).astype(np.int32)
        self._simulator.trace(placement)
        self._simulator.simulate(placement[None])
        self._incremental.set_base(placement)
        movable = np.flatnonzero(self._legal.sum(axis=1) > 1)[:1]
        elsewhere = self._legal.shape[1] - 1 - self._legal[movable, ::-1].argmax(axis=1)
        self._incremental.evaluate(movable, elsewhere)
        self._incremental.accept(movable, elsewhere)

    # Starts.

    def _simulate_starts(self, starts: Iterable[tuple[str, np.ndarray]]) -> None:
        """Simulates all starts that there is time for, and makes the best of them fit."""
        heuristics = starting_placements(self._problem, self._groups, self._memberships, self._seed)
        known: set[bytes] = set()
        batch: list[tuple[str, np.ndarray]] = []
        for source in (starts, heuristics):
            for name, placement in source:  # Making the next one may take seconds.
                if placement.tobytes() not in known:
                    known.add(placement.tobytes())
                    batch.append((name, placement))
                if len(batch) == (_START_BATCH if self._starts else 1):
                    self._simulate_batch(batch)
                    batch = []
                if self._progress() >= _STARTS_SHARE:
                    break
        self._simulate_batch(batch)
        self._starts.sort(key=lambda pair: pair[0].rank)
        if self._starts[0][0].excess_bytes:
            self._make_fit()

    def _simulate_batch(self, batch: Sequence[tuple[str, np.ndarray]]) -> None:
        if batch:
            found = self._simulate(np.stack([placement for _, placement in batch]))
            self._starts += [(each, name) for each, (name, _) in zip(found, batch, strict=True)]

    def _simulate(self, placements: np.ndarray) -> list[Found]:
        self._num_simulated += len(placements)
        simulated = self._simulator.simulate(placements)
        excess = np.maximum(simulated.peak_bytes - self._capacities, 0).sum(axis=1)
        return [
            Found(placement, float(secs), peaks, int(too_much))
            for placement, secs, peaks, too_much in zip(
                placements, simulated.step_secs, simulated.peak_bytes, excess, strict=True
            )
        ]

    def _make_fit(self) -> None:
        """Repairs the starts that come closest to fitting."""
        repair = MemoryRepair(self._problem, self._legal, self._seed)
        nothing = np.zeros(0, np.int32)
        for start, name in self._starts[: self._threads * 2]:
            for _ in range(_REPAIRS):
                change = repair.repair(
                    start.placement, nothing, nothing, start.peak_bytes, self._capacities
                )
                if change is None:
                    break
                placement = start.placement.copy()
                placement[change[0]] = change[1]
                [found] = self._simulate(placement[None])
                if found.rank < start.rank:
                    start = found
                    self._starts.append((found, name))
                if not found.excess_bytes:
                    break
        self._starts.sort(key=lambda pair: pair[0].rank)

    def _best_starts(self) -> tuple[tuple[str, Found], ...]:
        """The best of each name, best first."""
        best: dict[str, Found] = {}
        for found, name in sorted(self._starts, key=lambda pair: pair[0].rank):
            best.setdefault(name, found)
        return tuple(best.items())

    # Few placements.

    def _num_placements(self) -> float:
        # There may be far more than a float can hold.
        log_count = np.log(self._legal.sum(axis=1)).sum()
        return round(math.exp(log_count)) if log_count < _LOG_OF_TOO_MANY else math.inf

    def _try_all(self) -> None:
        """Simulates every placement."""
        devices = [np.flatnonzero(row).tolist() for row in self._legal]
        placements = itertools.product(*devices)
        while rows := list(itertools.islice(placements, _BATCH)):
            if self._elapsed_secs() >= self._max_secs:
                return
            best = min(self._simulate(np.array(rows, np.int32)), key=lambda found: found.rank)
            if not self._tried or best.rank < self._tried[0].rank:
                self._tried = [best]
            if self._report is not None:
                self._report(self._state())
        self._all_tried = True

    # Annealing.

    def _anneal(self) -> None:
        clusters = [
            metis_groups(self._groups, count, self._seed)
            for count in _CLUSTERS
            if count * 2 <= self._groups.num_groups and not self._memberships
        ]
        levels = make_levels(self._groups, [*self._memberships, self._groups.layers, *clusters])
        self._chains = [
            Annealer(
                self._problem,
                self._simulator,
                self._incremental.another(),
                self._legal,
                levels,
                self._starts[min(number, len(self._starts) - 1)][0],
                seed=self._seed * 1009 + number,
            )
            for number in range(self._threads)
        ]
        meetings = list(_MEETINGS)
        with concurrent.futures.ThreadPoolExecutor(self._threads) as executor:
            while self._progress() < 1.0 and not self._is_over():
                share = self._progress()
                if meetings and share >= meetings[0]:
                    meetings.pop(0)
                    best = min((chain.best for chain in self._chains), key=lambda f: f.rank)
                    for number, chain in enumerate(self._chains):
                        chain.restart(self._kicked(best) if number % 2 else best)
                # Nothing within a turn depends on the other chains, or on the time.
                left = self._max_simulated - self._simulated()
                steps = int(min(_STEPS_PER_TURN, -(-left // self._threads)))
                turns = [
                    executor.submit(chain.run, steps, *_schedule(share, number))
                    for number, chain in enumerate(self._chains)
                ]
                for turn in turns:
                    turn.result()
                if self._report is not None:
                    self._report(self._state())

    def _kicked(self, found: Found) -> Found:
        """A placement with a few groups anywhere, if that fits: out of the reach of moves."""
        movable = np.flatnonzero(self._legal.sum(axis=1) > 1)
        kicked = self._random.permutation(movable)[: max(2, int(_KICKED_SHARE * len(movable)))]
        chances = self._random.random([len(kicked), self._legal.shape[1]]) * self._legal[kicked]
        placement = found.placement.copy()
        placement[kicked] = chances.argmax(axis=1)
        [other] = self._simulate(placement[None])
        return found if other.excess_bytes else other

    def _is_over(self) -> bool:
        """Whether nothing better can be found."""
        return not self._chains[0].can_move or self._is_at_bound(self._state().best)

    def _is_at_bound(self, found: Found) -> bool:
        return not found.excess_bytes and found.step_secs <= self._bound_secs * (1.0 + 1e-9)

    def _state(self) -> AutoProgress:
        found = [*(chain.best for chain in self._chains), self._starts[0][0], *self._tried]
        return AutoProgress(
            min(found, key=lambda f: f.rank),
            self._progress(),
            self._simulated(),
            self._elapsed_secs(),
        )

    def _simulated(self) -> int:
        return self._num_simulated + sum(chain.num_simulated for chain in self._chains)

    def _progress(self) -> float:
        by_time = self._elapsed_secs() / self._max_secs
        return min(1.0, max(by_time, self._simulated() / self._max_simulated))

    def _elapsed_secs(self) -> float:
        return time.monotonic() - self._start_secs


def _schedule(progress: float, chain: int) -> tuple[float, float]:
    """Temperature and share of cluster moves: a long cooling, and short ones from lower down."""
    if progress < _MEETINGS[0]:
        first, share = _FIRST_TEMPERATURE, progress / _MEETINGS[0]
    else:
        number = bisect.bisect_right(_MEETINGS, progress)
        start, end = _MEETINGS[number - 1], [*_MEETINGS, 1.0][number]
        first = _AGAIN_TEMPERATURES[chain % len(_AGAIN_TEMPERATURES)]
        share = (progress - start) / (end - start)
    return (
        first * (_LAST_TEMPERATURE / first) ** min(1.0, share),
        _COARSE_SHARE * min(1.0, 2.0 * (1.0 - progress)),
    )
