import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.greedy_fill import GreedyFill
from tf_placer.placers.heuristics.group_memory import group_memories
from tf_placer.placers.heuristics.heft import Heft
from tf_placer.placers.heuristics.list_scheduler import (
    accelerators_first,
    bound_placements,
    legal_on,
)
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.placers.heuristics.m_topo import MTopo
from tf_placer.placers.heuristics.topological import Topological
from tf_placer.problem.problem_groups import group_graph, legal_devices


class ListSchedulerTest(absltest.TestCase):
    def test_all_of_them_cope_with_any_problem(self):
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

    def test_leaves_out_the_cpu_first_if_there_is_anything_else(self):
        self.assertEqual(accelerators_first(3), [[1, 2], [0, 1, 2]])
        self.assertEqual(accelerators_first(1), [[0]])

    def test_groups_that_may_only_go_to_other_devices_still_may(self):
        legal = np.array([[1, 1, 1], [1, 0, 0], [1, 0, 1]], np.bool_)
        expected = np.array([[0, 1, 0], [1, 0, 0], [1, 0, 1]], np.bool_)
        np.testing.assert_array_equal(legal_on(legal, [1]), expected)

    def test_schedules_again_only_under_a_limit_that_changes_something(self):
        problem = problems.task_problem([(1, 1)] * 3, resident_bytes=[4, 4, 4])
        limits = [np.full(2, most) for most in (np.inf, 20.0, 12.0, 8.0, 4.0)]
        bound = []

        def to_the_first_with_room(binding):
            bound.append(binding)
            for group in range(3):
                binding.bind(group, binding.choices(group)[0])

        placements = bound_placements(
            to_the_first_with_room, legal_devices(problem), group_memories(problem), limits
        )
        self.assertEqual([row.tolist() for row in placements], [[0, 0, 0], [0, 0, 1], [0, 1, 0]])
        self.assertLen(bound, 3)


if __name__ == "__main__":
    absltest.main()
