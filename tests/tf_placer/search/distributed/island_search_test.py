"""Tests of the island search, whose result does not depend on slow or dying workers."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import build_task_problem
from tests.tf_placer.search.distributed.in_process_backend import InProcessBackend
from tf_placer.errors import SearchError
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.problem_groups import group_graph
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.island_search import IslandWorker, island_search
from tf_placer.search.distributed.supervision import Timeouts
from tf_placer.simulation.simulator import Simulator


class IslandWorkers(InProcessBackend):
    """Workers in this process, which end in random order and die in given calls."""

    def __init__(self, problem, *, seed: int = 0, deaths: Sequence[int] = ()) -> None:
        super().__init__(
            lambda: IslandWorker(problem, AutoConfig(), 1), random.Random(seed), deaths
        )


class IslandSearchTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        before = [sorted(rng.choice(n, min(n, 2), replace=False)) for n in range(40)]
        edges = [
            (int(i), n, int(rng.integers(1, 4))) for n, each in enumerate(before) for i in each
        ]
        self.problem = build_task_problem(rng.integers(1, 9, (40, 3)).tolist(), edges)

    def search(self, backend: IslandWorkers, count: int = 3, max_simulated: int = 2400, **changes):
        return island_search(
            backend, count, max_secs=600.0, max_simulated=max_simulated, seed=5, **changes
        )

    def test_the_result_does_not_depend_on_the_order_in_which_workers_end(self):
        results = [self.search(IslandWorkers(self.problem, seed=seed)) for seed in range(3)]
        for result in results[1:]:
            self.assertEqual(result.best.placement.tolist(), results[0].best.placement.tolist())
            self.assertEqual(result.num_simulated, results[0].num_simulated)
            self.assertEqual(
                [found.rank for found in result.finalists],
                [found.rank for found in results[0].finalists],
            )

    def test_the_best_placement_has_the_reported_step_time(self):
        result = self.search(IslandWorkers(self.problem))
        simulated = Simulator(self.problem, threads=1).simulate(result.best.placement[None])
        self.assertEqual(result.best.step_secs, simulated.step_secs[0])
        self.assertEqual(result.best.rank, min(found.rank for found in result.finalists))
        self.assertLessEqual(result.num_simulated, 2400 + 3 * 4)

    def test_one_worker_is_a_search_without_workers(self):
        alone = coarse_to_fine_search(
            self.problem,
            group_graph(self.problem),
            max_secs=600.0,
            max_simulated=800,
            config=AutoConfig(),
            seed=5,
            threads=1,
        )
        result = self.search(IslandWorkers(self.problem), 1, 800)
        self.assertEqual(result.best.placement.tolist(), alone.best.placement.tolist())
        self.assertEqual(result.num_simulated, alone.num_simulated)

    def test_the_result_is_no_slower_than_the_placements_to_begin_from(self):
        best = self.search(IslandWorkers(self.problem), max_simulated=4800).best
        few = self.search(IslandWorkers(self.problem), max_simulated=12)
        self.assertGreater(few.best.step_secs, best.step_secs)
        started = self.search(
            IslandWorkers(self.problem), max_simulated=12, starts=[best.placement]
        )
        self.assertLessEqual(started.best.step_secs, best.step_secs)

    def test_a_lost_round_is_searched_again_with_the_same_random_numbers(self):
        whole = self.search(IslandWorkers(self.problem))
        lines: list[str] = []
        backend = IslandWorkers(self.problem, seed=1, deaths=[0, 2, 4])
        result = self.search(backend, say=lines.append)
        self.assertEqual(result.best.placement.tolist(), whole.best.placement.tolist())
        self.assertEqual(result.num_simulated, whole.num_simulated)
        self.assertEqual(backend.started, 3 + 3)
        self.assertLen(lines, 1 + 3)
        self.assertStartsWith(lines[0], "3 workers search in 4 rounds of up to 2 min 30 s, after")
        self.assertIn("is lost: its process died; another one takes its place", lines[1])

    def test_a_worker_that_hangs_is_replaced_and_its_round_searched_again(self):
        class Hanging(IslandWorkers):
            """The worker of the second search stops answering."""

            now_secs = 0.0
            hung = None

            def call(self, worker, method, *args):
                if len(self.asked) == 1 and method == "search":
                    self.hung = worker
                return super().call(worker, method, *args)

            def wait(self, calls, timeout_secs):
                self.now_secs += timeout_secs
                there = [call for call in calls if call.actor is not self.hung]
                return super().wait(there, timeout_secs) if there else []

        whole = self.search(IslandWorkers(self.problem))
        backend, lines = Hanging(self.problem), []
        timeouts = Timeouts(ping_interval=5.0, max_silence=30.0, max_start=40.0)
        result = self.search(
            backend, say=lines.append, timeouts=timeouts, clock=lambda: backend.now_secs
        )
        self.assertEqual(result.best.placement.tolist(), whole.best.placement.tolist())
        self.assertEqual(backend.started, 3 + 1)
        self.assertRegex(lines[1], "^worker 2 is lost: it has not answered for 40 s; another one")
        self.assertLen(lines, 2)

    def test_workers_use_different_random_numbers_and_continue_from_the_best_of_all(self):
        backend = IslandWorkers(self.problem)
        self.search(backend)
        seeds = [seed for seed, *_ in backend.asked]
        self.assertLen(set(seeds), len(seeds))
        first, later = backend.asked[:3], backend.asked[3:6]
        self.assertEqual([starts for _, starts, *_ in first], [[]] * 3)
        begun = {tuple(starts[0].tolist()) for _, starts, *_ in later}
        self.assertLen(begun, 1)

    def test_workers_that_die_repeatedly_end_the_search(self):
        class Dying(IslandWorkers):
            def result(self, call):
                raise WorkerLostError("its process died")

        with self.assertRaisesRegex(
            SearchError, r"worker \d was lost 5 times in a row: its process died"
        ):
            self.search(Dying(self.problem))

    def test_the_best_so_far_is_returned_when_all_workers_are_lost(self):
        class Lost(IslandWorkers):
            def wait(self, calls, timeout_secs):
                if len(self.asked) > 3:
                    raise SearchError("Ray has died")
                return super().wait(calls, timeout_secs)

        lines: list[str] = []
        result = self.search(Lost(self.problem), say=lines.append)
        self.assertTrue(result.interrupted)
        self.assertEqual(lines[1:], ["the search ends with the best so far: Ray has died"])

    def test_an_interrupt_ends_the_search_with_the_best_so_far(self):
        class Interrupted(IslandWorkers):
            def wait(self, calls, timeout_secs):
                if len(self.asked) > 3:
                    raise KeyboardInterrupt
                return super().wait(calls, timeout_secs)

        result = self.search(Interrupted(self.problem))
        self.assertTrue(result.interrupted)
        shares: list[float] = []
        whole = self.search(
            IslandWorkers(self.problem), report=lambda now: shares.append(now.share)
        )
        self.assertGreaterEqual(result.best.rank, whole.best.rank)
        self.assertEqual(shares, sorted(shares))


if __name__ == "__main__":
    absltest.main()
