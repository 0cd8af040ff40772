"""The simulated search of `auto` as an island model: workers exchange their best placements."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.errors import SearchError
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.auto_search import AutoProgress, AutoResult
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.search.distributed.actor_backend import ActorBackend
from tf_placer.search.distributed.supervision import SupervisedActor, Timeouts
from tf_placer.text.units import format_duration

__all__ = ["IslandWorker", "island_search"]

_NUM_ROUNDS = 4
_POLL_SECS = 0.2
_SEED_STRIDE = 7919


class IslandWorker:
    """Searches on its machine, from given placements."""

    def __init__(self, problem: PlacementProblem, config: AutoConfig, threads: int | None) -> None:
        """Prepares the search.

        Args:
            problem: the problem to place.
            config: settings of the search.
            threads: the number of chains; None for the number of cores of the machine.
        """
        self._problem = problem
        self._config = config
        self._threads = threads
        self._groups = group_graph(problem)

    def ping(self) -> int:
        """Returns the id of the process, even while it searches."""
        return os.getpid()

    def search(
        self, seed: int, starts: Sequence[np.ndarray], max_secs: float, max_simulated: float
    ) -> AutoResult:
        """Searches for the fastest placement; see `coarse_to_fine_search`."""
        return coarse_to_fine_search(
            self._problem,
            self._groups,
            max_secs=max_secs,
            max_simulated=max_simulated,
            config=self._config,
            starts=[("met", start) for start in starts],
            seed=seed,
            threads=self._threads,
        )


def island_search(
    backend: ActorBackend,
    count: int,
    *,
    max_secs: float,
    max_simulated: float = math.inf,
    stop_secs: float = 0.0,
    seed: int = 0,
    starts: Sequence[np.ndarray] = (),
    report: Callable[[AutoProgress], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
    timeouts: Timeouts | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AutoResult:
    """Searches on several workers in parallel, each with its own random numbers.

    The search has several rounds. After each, every worker continues from the best placement of all
    workers and from its own. If `max_simulated` ends the search, the same seed and number of
    workers give the same placement, whatever the speed of machines and whichever workers are lost:
    the round of a lost worker is searched again with the same random numbers.

    Args:
        backend: starts actors of class `IslandWorker`.
        count: the number of workers.
        max_secs: seconds after which no worker continues.
        max_simulated: the maximum number of placements that all workers simulate together.
        stop_secs: no further round begins once a placement that fits has a step of at most this
            time.
        seed: the seed of all random numbers.
        starts: placements from which all workers begin, too, int32 [num_groups] each.
        report: called when a worker has finished a round.
        say: called with a message for people at the beginning, and when a worker was lost.
        timeouts: limits on waiting.
        clock: returns the time in seconds.

    Returns:
        The merged results of `coarse_to_fine_search` of all workers.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed before any worker had finished its first round.
        SearchError: workers are lost repeatedly, or cannot search, before any has finished its
            first round.
    """
    workers = [
        SupervisedActor(backend, f"worker {number}", say, timeouts, clock)
        for number in range(1, count + 1)
    ]
    budget = max_secs, max_simulated, stop_secs
    return _Islands(backend, workers, *budget, seed, starts, report, say, clock).run()


@dataclasses.dataclass
class _Island:
    """An island of the search, which outlives its worker process.

    Attributes:
        number: number of the island, from 0.
        worker: its supervised worker.
        best: its best placement so far; None before the first.
    """

    number: int
    worker: SupervisedActor
    best: Candidate | None = None


class _Islands:
    """The state of one search."""

    def __init__(
        self,
        backend: ActorBackend,
        workers: Sequence[SupervisedActor],
        max_secs: float,
        max_simulated: float,
        stop_secs: float,
        seed: int,
        starts: Sequence[np.ndarray],
        report: Callable[[AutoProgress], None] | None,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._backend = backend
        count = len(workers)
        # A single worker has no other to exchange placements with.
        self._num_rounds = _NUM_ROUNDS if count > 1 else 1
        self._seed, self._starts = seed, starts
        self._max_secs, self._stop_secs = max_secs, stop_secs
        self._round_secs = max_secs / self._num_rounds
        self._round_simulated = max(1.0, max_simulated / self._num_rounds / count)
        self._report = report
        self._say = say
        self._clock = clock
        self._start_secs = clock()
        # By round and island, so that the result does not depend on the order of arrival.
        self._result_of: dict[tuple[int, int], AutoResult] = {}
        self._islands = [_Island(number, worker) for number, worker in enumerate(workers)]

    def run(self) -> AutoResult:
        """Runs all rounds, and merges the results."""
        interrupted = False
        self._say(self._describe_rounds())
        try:
            for number in range(self._num_rounds):
                left_secs = self._max_secs - self._measure_elapsed()
                if number and (left_secs <= 0 or self._is_settled()):
                    break
                self._run_round(number, min(self._round_secs, left_secs))
        except KeyboardInterrupt:
            if not self._result_of:
                raise
            interrupted = True
        except SearchError as error:
            if not self._result_of:
                raise
            # The placements found so far remain valid, so return the best of them.
            self._say(f"the search ends with the best so far: {error}")
            interrupted = True
        return self._merge_results(interrupted)

    def _run_round(self, number: int, max_secs: float) -> None:
        """Lets all workers search once."""
        best = self._best.placement if self._result_of else None
        for island in self._islands:
            own = None if island.best is None else island.best.placement
            starts = [each for each in (best, own, *self._starts) if each is not None]
            seed = self._seed + _SEED_STRIDE * (number * len(self._islands) + island.number)
            island.worker.begin("search", seed, starts, max_secs, self._round_simulated)
        while any(island.worker.doing for island in self._islands):
            calls = [call for each in self._islands for call in each.worker.calls]
            ended = self._backend.wait(calls, _POLL_SECS)
            for island in self._islands:
                done = island.worker.update(ended)
                if done is not None:
                    self._add_result(number, island, done[1])

    def _describe_rounds(self) -> str:
        count = len(self._islands)
        if count == 1:
            return "1 worker searches"
        each = ""
        if self._max_secs < math.inf:
            each = f" of up to {format_duration(self._round_secs)}"
        return (
            f"{count} workers search in {self._num_rounds} rounds{each}, after each of which they "
            "go on from the best placement of all"
        )

    @property
    def _results(self) -> list[AutoResult]:
        return [result for _, result in sorted(self._result_of.items(), key=lambda item: item[0])]

    def _add_result(self, number: int, island: _Island, result: AutoResult) -> None:
        """Stores and reports the result of a worker in a round."""
        self._result_of[number, island.number] = result
        island.best = min(
            [result.best, *([] if island.best is None else [island.best])], key=lambda f: f.rank
        )
        if self._report is not None:
            share = len(self._results) / self._num_rounds / len(self._islands)
            num_simulated = sum(each.num_simulated for each in self._results)
            self._report(AutoProgress(self._best, share, num_simulated, self._measure_elapsed()))

    @property
    def _best(self) -> Candidate:
        # Ties go to the lowest island number, so that the order of arrival does not matter.
        found = [each.best for each in self._islands if each.best is not None]
        return min(found, key=lambda each: each.rank)

    def _is_settled(self) -> bool:
        return any(
            result.is_optimal
            or result.is_near_bound
            or (not result.best.excess_bytes and result.best.step_secs <= self._stop_secs)
            for result in self._results
        )

    def _measure_elapsed(self) -> float:
        return self._clock() - self._start_secs

    def _merge_results(self, interrupted: bool) -> AutoResult:
        """Merges the results of all workers."""
        finalists = {
            found.placement.tobytes(): found
            for result in self._results
            for found in result.finalists
        }
        best = self._best
        best_result = next(r for r in self._results if r.best.rank == best.rank)
        return dataclasses.replace(
            best_result,
            best=best,
            finalists=tuple(sorted(finalists.values(), key=lambda found: found.rank)),
            num_simulated=sum(result.num_simulated for result in self._results),
            elapsed_secs=self._measure_elapsed(),
            is_near_bound=any(result.is_near_bound for result in self._results),
            is_optimal=any(result.is_optimal for result in self._results),
            interrupted=interrupted or any(result.interrupted for result in self._results),
        )
