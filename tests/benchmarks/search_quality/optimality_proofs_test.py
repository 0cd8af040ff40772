import itertools
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.search_quality.optimality_proofs import (
    find_best_order_length,
    prove_optimal,
    require_solver,
)
from benchmarks.search_quality.published_graphs import TaskGraph
from benchmarks.search_quality.schedule_lengths import compute_bound
from tests.benchmarks.search_quality.task_graphs import (
    DIAMOND,
    list_placements,
    random_graph,
    require_usable_solver,
    shortest_length,
    shortest_order_length,
)

_MAX_SECS = 60.0


class OptimalityProofsTest(absltest.TestCase):
    def test_proves_what_brute_force_finds(self):
        require_usable_solver(self)
        outcomes = set()
        for seed in range(25):
            graph = random_graph(seed, num_tasks=5, num_processors=2 + seed % 2)
            shortest = shortest_length(graph)
            proof = prove_optimal(graph, shortest, max_secs=_MAX_SECS)
            self.assertEqual(
                proof.outcome, "bound" if shortest == compute_bound(graph) else "solver"
            )
            outcomes.add(proof.outcome)
            # A schedule that is longer by one is not optimal.
            self.assertEqual(
                prove_optimal(graph, shortest + 1, max_secs=_MAX_SECS).outcome, "shorter"
            )
        self.assertLen(outcomes, 2)

    def test_finds_the_best_order(self):
        require_usable_solver(self)
        for seed in range(5):
            graph = random_graph(seed, num_tasks=6)
            for placement in itertools.islice(list_placements(graph), 0, None, 9):
                self.assertEqual(
                    find_best_order_length(graph, placement, max_secs=_MAX_SECS),
                    shortest_order_length(graph, placement),
                )

    def test_says_when_the_time_was_too_short(self):
        require_usable_solver(self)
        # One of 12 processors gets three of 25 tasks, but the work alone does not say so.
        lengths = tuple(20 + task % 3 for task in range(25))
        graph = TaskGraph("pigeonhole", 12, lengths, (), 60)
        proof = prove_optimal(graph, 60, max_secs=0.3)
        self.assertEqual(proof.outcome, "unknown")
        self.assertBetween(proof.secs, 0.3, 3.0)

    def test_names_what_to_install(self):
        with (
            mock.patch.dict(sys.modules, {"ortools.sat.python": None}),
            self.assertRaisesRegex(ImportError, r"pip install '.\[proofs\]'"),
        ):
            require_solver()
        with (
            mock.patch.dict(sys.modules, {"ortools.sat.python": None}),
            self.assertRaises(ImportError),
        ):
            prove_optimal(DIAMOND, 9, max_secs=1.0)


if __name__ == "__main__":
    absltest.main()
