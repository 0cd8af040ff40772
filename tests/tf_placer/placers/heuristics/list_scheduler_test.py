import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.greedy_fill import GreedyFill
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.heft import Heft
from tf_placer.placers.heuristics.list_scheduler import (
    generate_placements,
    list_device_sets,
    restrict_to_devices,
)
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.placers.heuristics.m_topo import MTopo
from tf_placer.placers.heuristics.topological import Topological
from tf_placer.problem.problem_groups import group_graph, legal_devices


class ListSchedulerTest(absltest.TestCase):
    def test_all_list_schedulers_propose_legal_placements(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            problem = random_problems.random_problem(rng, 20)
            groups, legal = group_graph(problem), legal_devices(problem)
            for placer_type in (GreedyFill, Heft, MEtf, MTopo, Topological):
                placements = placer_type(groups, legal, problem=problem).propose(99)
                self.assertNotEmpty(placements)
                self.assertTrue(legal[np.arange(len(legal)), placements].all())
                again = placer_type(groups, legal, problem=problem).propose(99)
                np.testing.assert_array_equal(placements, again)

    def test_tries_the_devices_without_the_cpu_first(self):
        self.assertEqual(list_device_sets(3), [[1, 2], [0, 1, 2]])
        self.assertEqual(list_device_sets(1), [[0]])

    def test_groups_without_a_used_device_keep_theirs(self):
        legal = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 1]], np.bool_)
        expected = np.array([[0, 1, 0], [1, 0, 0], [1, 0, 1]], np.bool_)
        np.testing.assert_array_equal(restrict_to_devices(legal, [1]), expected)

    def test_skips_limits_that_the_last_placement_meets(self):
        problem = problems.build_task_problem([(1, 1)] * 3, resident_bytes=[4, 4, 4])
        limits = [np.full(2, most) for most in (np.inf, 20.0, 12.0, 8.0, 4.0)]
        bound = []

        def bind_to_first_with_room(binding):
            bound.append(binding)
            for group in range(3):
                binding.bind(group, binding.list_choices(group)[0])

        placements = generate_placements(
            bind_to_first_with_room,
            legal_devices(problem),
            estimate_group_memories(problem),
            limits,
        )
        self.assertEqual([row.tolist() for row in placements], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
        self.assertLen(bound, 3)


if __name__ == "__main__":
    absltest.main()
