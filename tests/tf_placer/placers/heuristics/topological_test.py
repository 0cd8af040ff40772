import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.topological import Topological
from tf_placer.problem.problem_groups import group_graph, legal_devices


def propose(problem):
    placer = Topological(group_graph(problem), legal_devices(problem), problem=problem)
    return placer.propose(99).tolist()


class TopologicalTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return Topological(groups, legal, seed=seed, problem=problem)

    def test_gives_each_device_a_part_of_equal_work_without_and_with_the_cpu(self):
        problem = problems.build_task_problem([(1, 1, 1)] * 6)
        self.assertEqual(propose(problem), [[1, 1, 1, 2, 2, 2], [0, 0, 1, 1, 2, 2]])

    def test_counts_work_on_the_fastest_device(self):
        problem = problems.build_task_problem([(9, 4, 9), (9, 1, 5), (2, 9, 9), (1, 1, 1)])
        self.assertEqual(propose(problem)[0], [1, 2, 2, 2])

    def test_orders_groups_by_their_first_operation_in_topological_order(self):
        # The topological order is 2, 0, 1, 3.
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 4, [(2, 0, 0), (2, 1, 0)], groups=[1, 2, 0, 0]
        )
        self.assertEqual(propose(problem)[0], [1, 2, 2])

    def test_groups_that_only_the_cpu_runs_stay_there(self):
        inf = float("inf")
        problem = problems.build_task_problem([(1, 1, 1), (1, inf, inf), (1, 1, 1)])
        self.assertEqual(propose(problem)[0], [1, 0, 2])

    def test_accepts_zero_work_and_a_single_device(self):
        self.assertEqual(propose(problems.build_task_problem([(0, 0)] * 2)), [[1, 1]])
        self.assertEqual(propose(problems.build_task_problem([(1,)] * 2)), [[0, 0]])


if __name__ == "__main__":
    absltest.main()
