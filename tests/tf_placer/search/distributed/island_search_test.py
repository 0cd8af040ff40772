"""Searches of several workers that meet: the same result whatever is slow or dies."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers.problems import task_problem
from tests.tf_placer.search.distributed.process_fleet import ProcessFleet
from tf_placer.errors import SearchError
from tf_placer.placers.auto.auto_config import AutoConfig
from tf_placer.placers.auto.refined_search import refined_search
from tf_placer.problem.problem_groups import group_graph
from tf_placer.search.distributed.fleet import WorkerLostError
from tf_placer.search.distributed.island_search import IslandWorker, island_search
from tf_placer.search.distributed.supervision import Timeouts
from tf_placer.simulation.simulator import Simulator


class Fleet(ProcessFleet):
    """Workers of this process, which end in an order of chance and die where they are told to."""

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
        self.problem = task_problem(rng.integers(1, 9, (40, 3)).tolist(), edges)

    def search(self, fleet: Fleet, count: int = 3, max_simulated: int = 2400, **changes):
        return island_search(
            fleet, count, max_secs=600.0, max_simulated=max_simulated, seed=5, **changes
        )

    def test_the_result_is_the_same_in_whichever_order_workers_end(self):
        results = [self.search(Fleet(self.problem, seed=seed)) for seed in range(3)]
        for result in results[1:]:
            self.assertEqual(result.best.placement.tolist(), results[0].best.placement.tolist())
            self.assertEqual(result.num_simulated, results[0].num_simulated)
            self.assertEqual(
                [found.rank for found in result.finalists],
                [found.rank for found in results[0].finalists],
            )

    def test_what_is_found_takes_as_long_as_is_said(self):
        result = self.search(Fleet(self.problem))
        simulated = Simulator(self.problem, threads=1).simulate(result.best.placement[None])
        self.assertEqual(result.best.step_secs, simulated.step_secs[0])
        self.assertEqual(result.best.rank, min(found.rank for found in result.finalists))
        self.assertLessEqual(result.num_simulated, 2400 + 3 * 4)

    def test_one_worker_is_a_search_without_workers(self):
        alone = refined_search(
            self.problem,
            group_graph(self.problem),
            max_secs=600.0,
            max_simulated=800,
            config=AutoConfig(),
            seed=5,
            threads=1,
        )
        result = self.search(Fleet(self.problem), 1, 800)
        self.assertEqual(result.best.placement.tolist(), alone.best.placement.tolist())
        self.assertEqual(result.num_simulated, alone.num_simulated)

    def test_a_part_that_was_lost_is_searched_again_with_the_same_random_numbers(self):
        whole = self.search(Fleet(self.problem))
        lines: list[str] = []
        fleet = Fleet(self.problem, seed=1, deaths=[0, 2, 4])
        result = self.search(fleet, say=lines.append)
        self.assertEqual(result.best.placement.tolist(), whole.best.placement.tolist())
        self.assertEqual(result.num_simulated, whole.num_simulated)
        self.assertEqual(fleet.started, 3 + 3)
        self.assertLen(lines, 3)
        self.assertIn("is lost: its process died; another one takes its place", lines[0])

    def test_a_worker_that_hangs_is_replaced_and_its_part_searched_again(self):
        class Hanging(Fleet):
            """The worker that has the second search does not answer from then on."""

            now_secs = 0.0
            hung = None

            def call(self, worker, method, *args):
                if len(self.asked) == 1 and method == "search":
                    self.hung = worker
                return super().call(worker, method, *args)

            def ended(self, calls, timeout_secs):
                self.now_secs += timeout_secs
                there = [call for call in calls if call.actor is not self.hung]
                return super().ended(there, timeout_secs) if there else []

        whole = self.search(Fleet(self.problem))
        fleet, lines = Hanging(self.problem), []
        timeouts = Timeouts(ping=5.0, silence=30.0, start=40.0)
        result = self.search(
            fleet, say=lines.append, timeouts=timeouts, clock=lambda: fleet.now_secs
        )
        self.assertEqual(result.best.placement.tolist(), whole.best.placement.tolist())
        self.assertEqual(fleet.started, 3 + 1)
        self.assertRegex(lines[0], "^worker 2 is lost: it has not answered for 40 s; another one")
        self.assertLen(lines, 1)

    def test_workers_use_different_random_numbers_and_go_on_from_the_best_of_all(self):
        fleet = Fleet(self.problem)
        self.search(fleet)
        seeds = [seed for seed, *_ in fleet.asked]
        self.assertLen(set(seeds), len(seeds))
        first, later = fleet.asked[:3], fleet.asked[3:6]
        self.assertEqual([starts for _, starts, *_ in first], [[]] * 3)
        begun = {tuple(starts[0].tolist()) for _, starts, *_ in later}
        self.assertLen(begun, 1)

    def test_workers_that_die_again_and_again_end_the_search(self):
        class Dying(Fleet):
            def result(self, call):
                raise WorkerLostError("its process died")

        with self.assertRaisesRegex(
            SearchError, r"worker \d was lost 5 times in a row: its process died"
        ):
            self.search(Dying(self.problem))

    def test_what_was_found_before_workers_are_lost_for_good_is_kept(self):
        class Lost(Fleet):
            def ended(self, calls, timeout_secs):
                if len(self.asked) > 3:
                    raise SearchError("Ray has died")
                return super().ended(calls, timeout_secs)

        lines: list[str] = []
        result = self.search(Lost(self.problem), say=lines.append)
        self.assertTrue(result.interrupted)
        self.assertEqual(lines, ["the search ends with the best so far: Ray has died"])

    def test_an_interrupt_ends_it_with_the_best_so_far(self):
        class Interrupted(Fleet):
            def ended(self, calls, timeout_secs):
                if len(self.asked) > 3:
                    raise KeyboardInterrupt
                return super().ended(calls, timeout_secs)

        result = self.search(Interrupted(self.problem))
        self.assertTrue(result.interrupted)
        shares: list[float] = []
        whole = self.search(Fleet(self.problem), report=lambda now: shares.append(now.share))
        self.assertGreaterEqual(result.best.rank, whole.best.rank)
        self.assertEqual(shares, sorted(shares))


if __name__ == "__main__":
    absltest.main()
