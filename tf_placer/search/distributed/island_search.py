"""The simulated search of `auto` on several workers that meet now and then."""

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
from tf_placer.placers.auto.found import Found
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph
from tf_placer.search.distributed.fleet import Fleet
from tf_placer.search.distributed.supervision import SupervisedActor, Timeouts

__all__ = ["IslandWorker", "island_search"]

# How often the workers meet, the end included. One alone has nobody to meet.
_ROUNDS = 4
_POLL_SECS = 0.2
# Seeds of different workers and rounds are so far apart.
_SEED_STEP = 7919


class IslandWorker:
    """Searches on its machine, from what it is given to begin with."""

    def __init__(self, problem: PlacementProblem, config: AutoConfig, threads: int | None) -> None:
        """Searches nothing yet.

        Args:
            problem: what is placed.
            config: how to search.
            threads: how many chains; as many as the machine has cores when None.
        """
        self._problem = problem
        self._config = config
        self._threads = threads
        self._groups = group_graph(problem)

    def ping(self) -> int:
        """Answers with the id of its process, also while it searches."""
        return os.getpid()

    def search(
        self, seed: int, starts: Sequence[np.ndarray], max_secs: float, max_simulated: float
    ) -> AutoResult:
        """Searches for the fastest placement; see `refined_search`."""
        return refined_search(
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
    fleet: Fleet,
    count: int,
    *,
    max_secs: float,
    max_simulated: float = math.inf,
    seed: int = 0,
    report: Callable[[AutoProgress], None] | None = None,
    say: Callable[[str], None] = lambda line: None,
    timeouts: Timeouts | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AutoResult:
    """Lets workers search side by side, each with random numbers of its own.

    When all have ended their part of the budget they meet: each goes on from the best placement of
    all, and from its own. Where `max_simulated` ends the search, the same seed and number of
    workers give the same placement, whichever machine is how fast, and whatever dies: the part of
    a worker that was lost is searched again with the same random numbers.

    Args:
        fleet: starts `IslandWorker`s.
        count: how many.
        max_secs: seconds after which no worker goes on.
        max_simulated: how many placements all of them simulate at most.
        seed: of everything random.
        report: called when a worker has ended its part.
        say: called with a line for people when a worker was lost.
        timeouts: how long to wait for what.
        clock: gives the time in seconds.

    Returns:
        What `refined_search` returns, of all workers.

    Raises:
        KeyboardInterrupt: the search was interrupted before a worker had ended its first part.
        SearchError: workers are lost again and again, or cannot search, and none had ended its
            first part.
    """
    workers = [
        SupervisedActor(fleet, f"worker {number}", say, timeouts, clock)
        for number in range(1, count + 1)
    ]
    return _Islands(fleet, workers, max_secs, max_simulated, seed, report, say, clock).run()


@dataclasses.dataclass
class _Island:
    """A worker's place in the search.

    Attributes:
        number: from 0.
        worker: who has it, whichever process that is now.
        best: the best placement that it has found; None before the first.
    """

    number: int
    worker: SupervisedActor
    best: Found | None = None


class _Islands:
    """One search."""

    def __init__(
        self,
        fleet: Fleet,
        workers: Sequence[SupervisedActor],
        max_secs: float,
        max_simulated: float,
        seed: int,
        report: Callable[[AutoProgress], None] | None,
        say: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._fleet = fleet
        count = len(workers)
        self._rounds = _ROUNDS if count > 1 else 1
        self._seed = seed
        self._max_secs = max_secs
        self._part = max_secs / self._rounds, max(1.0, max_simulated / self._rounds / count)
        self._report = report
        self._say = say
        self._clock = clock
        self._start_secs = clock()
        # By round and island: in whichever order they came, the search is the same.
        self._found: dict[tuple[int, int], AutoResult] = {}
        self._islands = [_Island(number, worker) for number, worker in enumerate(workers)]

    def run(self) -> AutoResult:
        """Searches round by round."""
        interrupted = False
        try:
            for number in range(self._rounds):
                left_secs = self._max_secs - self._elapsed_secs()
                if number and (left_secs <= 0 or self._is_settled()):
                    break
                self._round(number, min(self._part[0], left_secs))
        except KeyboardInterrupt:
            if not self._found:
                raise
            interrupted = True
        except SearchError as error:
            if not self._found:
                raise
            # What was found is as good as ever.
            self._say(f"the search ends with the best so far: {error}")
            interrupted = True
        return self._joined(interrupted)

    def _round(self, number: int, max_secs: float) -> None:
        """Lets all workers search once."""
        best = self._best.placement if self._found else None
        for island in self._islands:
            own = None if island.best is None else island.best.placement
            starts = [each for each in (best, own) if each is not None]
            seed = self._seed + _SEED_STEP * (number * len(self._islands) + island.number)
            island.worker.begin("search", seed, starts, max_secs, self._part[1])
        while any(island.worker.doing for island in self._islands):
            calls = [call for each in self._islands for call in each.worker.calls]
            ended = self._fleet.ended(calls, _POLL_SECS)
            for island in self._islands:
                done = island.worker.outcome(ended)
                if done is not None:
                    self._take(number, island, done[1])

    @property
    def _results(self) -> list[AutoResult]:
        return [result for _, result in sorted(self._found.items(), key=lambda item: item[0])]

    def _take(self, number: int, island: _Island, result: AutoResult) -> None:
        """Takes in what a worker has found in a round."""
        self._found[number, island.number] = result
        island.best = min(
            [result.best, *([] if island.best is None else [island.best])], key=lambda f: f.rank
        )
        if self._report is not None:
            share = len(self._results) / self._rounds / len(self._islands)
            num_simulated = sum(each.num_simulated for each in self._results)
            self._report(AutoProgress(self._best, share, num_simulated, self._elapsed_secs()))

    @property
    def _best(self) -> Found:
        # Of equals that of the island with the lowest number, whichever ended first.
        found = [each.best for each in self._islands if each.best is not None]
        return min(found, key=lambda each: each.rank)

    def _is_settled(self) -> bool:
        return any(result.is_optimal or result.is_near_bound for result in self._results)

    def _elapsed_secs(self) -> float:
        return self._clock() - self._start_secs

    def _joined(self, interrupted: bool) -> AutoResult:
        """Puts the results of all workers together."""
        finalists = {
            found.placement.tobytes(): found
            for result in self._results
            for found in result.finalists
        }
        best = self._best
        of_best = next(r for r in self._results if r.best.rank == best.rank)
        return dataclasses.replace(
            of_best,
            best=best,
            finalists=tuple(sorted(finalists.values(), key=lambda found: found.rank)),
            num_simulated=sum(result.num_simulated for result in self._results),
            elapsed_secs=self._elapsed_secs(),
            is_near_bound=any(result.is_near_bound for result in self._results),
            is_optimal=any(result.is_optimal for result in self._results),
            interrupted=interrupted or any(result.interrupted for result in self._results),
        )
