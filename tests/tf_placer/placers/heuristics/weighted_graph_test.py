import dataclasses
import doctest
import itertools

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import graphs, problems
from tf_placer.machines.machine import Link
from tf_placer.placers.heuristics import weighted_graph as module
from tf_placer.placers.heuristics.weighted_graph import (
    build_weighted_graph,
    compute_link_costs,
    list_accelerators,
    scale_to_integers,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, legal_devices

_INF = np.inf


def load_tests(loader, tests, pattern):
    tests.addTests(doctest.DocTestSuite(module))
    return tests


def _graph(problem, devices):
    return build_weighted_graph(
        group_graph(problem), legal_devices(problem), problem, np.array(devices)
    )


def _replace_links(problem: PlacementProblem, secs) -> PlacementProblem:
    """Replaces the links by links of given latencies and the bandwidth of a byte per second."""
    names = [device.name for device in problem.devices]
    links = tuple(
        Link(names[a], names[b], secs[a][b], 1.0)
        for a, b in itertools.permutations(range(len(names)), 2)
    )
    return dataclasses.replace(problem, links=links)


class WeightedGraphTest(absltest.TestCase):
    def test_accelerators_are_of_another_kind_than_device_0(self):
        self.assertEqual(
            list_accelerators(problems.build_task_problem([(1, 1, 1)])).tolist(), [1, 2]
        )

    def test_all_devices_are_accelerators_if_they_are_of_one_kind(self):
        problem = problems.build_task_problem([(1, 1)])
        alike = tuple(dataclasses.replace(d, kind="CPU") for d in problem.devices)
        self.assertEqual(
            list_accelerators(dataclasses.replace(problem, devices=alike)).tolist(), [0, 1]
        )

    def test_groups_without_choice_are_left_out_with_their_edges(self):
        problem = problems.build_task_problem(
            [(1, 2, 2), (1, _INF, _INF), (9, 4, 4), (_INF, 5, _INF), (9, 6, 6)],
            [(0, 1, 100), (0, 2, 10), (2, 4, 7), (3, 4, 1000)],
        )
        graph = _graph(problem, [0, 1, 2])
        self.assertEqual(graph.members.tolist(), [0, 2, 4])
        self.assertEqual(graph.start.tolist(), [0, 1, 3, 4])
        self.assertEqual(graph.neighbors.tolist(), [1, 0, 2, 1])
        self.assertEqual(graph.edge_bytes.tolist(), [10, 10, 7, 7])

    def test_groups_that_may_go_to_none_of_the_devices_are_left_out(self):
        problem = problems.build_task_problem([(1, 1, _INF), (1, 1, 1), (1, _INF, 1)])
        self.assertEqual(_graph(problem, [2]).members.tolist(), [1, 2])

    def test_work_is_in_proportion_to_the_mean_seconds_on_accelerators(self):
        problem = problems.build_task_problem([(9, 1, 3), (9, 4, 4), (5, _INF, 8), (1, 0, 0)])
        work = _graph(problem, [0, 1, 2]).work
        self.assertEqual(work[3], 1)
        np.testing.assert_allclose(work[:3] / work.sum(), np.array([2, 4, 8]) / 14, rtol=1e-5)

    def test_the_power_of_a_device_is_the_speed_of_groups_on_it(self):
        problem = problems.build_task_problem([(20, 1, 2), (100, 5, 10)])
        graph = _graph(problem, [0, 1, 2])
        np.testing.assert_allclose(graph.powers, [0.05, 1.0, 0.5])
        self.assertEqual(graph.scale_powers().tolist(), [50, 1000, 500])
        np.testing.assert_allclose(_graph(problem, [2, 1]).powers, [0.5, 1.0])

    def test_forbidden_groups_do_not_affect_the_power_of_a_device(self):
        problem = problems.build_task_problem([(10, 1, 1), (10, 1, 1), (_INF, 100, 100)])
        np.testing.assert_allclose(_graph(problem, [0, 1, 2]).powers, [0.1, 1.0, 1.0])

    def test_groups_that_take_no_time_make_devices_equal(self):
        graph = _graph(problems.build_task_problem([(0, 0), (0, 0)]), [0, 1])
        self.assertEqual(graph.powers.tolist(), [1.0, 1.0])
        self.assertEqual(graph.work.tolist(), [1, 1])

    def test_counts_the_bytes_of_edges_that_are_cut(self):
        rng = np.random.default_rng(0)
        edges = sorted({(min(a, b), max(a, b)) for a, b in rng.integers(0, 12, [30, 2]) if a != b})
        sizes = rng.integers(1, 1000, len(edges))
        secs = np.ones([12, 3])
        problem = problems.build_task_problem(
            secs.tolist(), [(a, b, int(size)) for (a, b), size in zip(edges, sizes, strict=True)]
        )
        graph = _graph(problem, [0, 1, 2])
        for _ in range(20):
            parts = rng.integers(0, 3, 12)
            cut = sum(
                size
                for (a, b), size in zip(edges, sizes.tolist(), strict=True)
                if parts[a] != parts[b]
            )
            self.assertEqual(graph.compute_cut_bytes(parts), cut)

    def test_link_costs_are_the_mean_of_both_directions_relative_to_the_fastest(self):
        secs = [[0, 1, 2], [3, 0, 6], [4, 8, 0]]
        problem = _replace_links(problems.build_task_problem([(1, 1, 1)]), secs)
        costs = compute_link_costs(problem, np.array([0, 1, 2]), 0.0)
        self.assertEqual(costs.tolist(), [[0, 10, 15], [10, 0, 35], [15, 35, 0]])
        # With 2 bytes: 4, 5 and 9 seconds.
        costs = compute_link_costs(problem, np.array([0, 1, 2]), 2.0)
        self.assertEqual(costs.tolist(), [[0, 10, 12], [10, 0, 22], [12, 22, 0]])
        self.assertEqual(
            compute_link_costs(problem, np.array([2, 1]), 0.0).tolist(), [[0, 10], [10, 0]]
        )

    def test_free_links_have_equal_costs(self):
        problem = problems.build_task_problem([(1, 1, 1)])
        costs = compute_link_costs(problem, np.arange(3), 0.0)
        self.assertEqual(costs.tolist(), [[0, 10, 10], [10, 0, 10], [10, 10, 0]])
        self.assertEqual(compute_link_costs(problem, np.array([1]), 5.0).tolist(), [[0]])

    def test_no_link_costs_more_than_a_thousand(self):
        secs = [[0, 0, 1e-6], [0, 0, 1], [1e-6, 1, 0]]
        problem = _replace_links(problems.build_task_problem([(1, 1, 1)]), secs)
        costs = compute_link_costs(problem, np.arange(3), 0.0)
        self.assertEqual(costs[1, 2], 1000)
        self.assertGreaterEqual(costs[~np.eye(3, dtype=bool)].min(), 1)

    def test_integers_add_up_to_nearly_the_largest_sum(self):
        rng = np.random.default_rng(0)
        weights = rng.exponential(size=1000) * 10.0 ** rng.integers(-3, 9)
        numbers = scale_to_integers(weights, 1 << 30)
        self.assertEqual(numbers.dtype, np.int32)
        self.assertBetween(int(numbers.sum(dtype=np.int64)), (1 << 30) - 2000, 1 << 30)
        np.testing.assert_allclose(
            numbers / numbers.sum(dtype=np.float64), weights / weights.sum(), atol=1e-8
        )
        self.assertEqual(scale_to_integers(np.zeros(3), 99).tolist(), [1, 1, 1])
        self.assertEqual(scale_to_integers(np.ones(5), 2).tolist(), [1] * 5)

    def test_accepts_groups_without_edges(self):
        problem = problems.build_group_problem(graphs.group_graph(3), np.ones([3, 2], np.bool_))
        graph = _graph(problem, [0, 1])
        self.assertEqual(graph.start.tolist(), [0, 0, 0, 0])
        self.assertEqual(graph.compute_cut_bytes(np.array([0, 1, 0])), 0)


if __name__ == "__main__":
    absltest.main()
