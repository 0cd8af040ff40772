import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.problem.problem_groups import group_graph, legal_devices


def propose(problem):
    placer = MEtf(group_graph(problem), legal_devices(problem), problem=problem)
    return placer.propose(99).tolist()


class MEtfTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return MEtf(groups, legal, seed=seed, problem=problem)

    def test_proposes_the_schedule_without_the_cpu_first_and_then_with_it(self):
        problem = problems.build_task_problem([(1, 1, 1)] * 3)
        self.assertEqual(propose(problem), [[1, 2, 1], [0, 1, 2]])

    def test_operations_that_only_the_cpu_runs_stay_there(self):
        inf = float("inf")
        problem = problems.build_task_problem([(1, inf, inf), (1, 1, 1), (1, 1, 1)])
        self.assertEqual(propose(problem)[0], [0, 1, 2])

    def test_costlier_transfers_keep_operations_together(self):
        # Operations 1 and 2 depend on 0. Its device is free again at 5; on the other device, 2 can
        # start at 3.
        problem = problems.build_task_problem(
            [(1, 1, 1), (4, 4, 4), (4, 4, 4)], [(0, 1, 0), (0, 2, 2)]
        )
        self.assertEqual(propose(problem)[:2], [[1, 1, 2], [1, 1, 1]])

    def test_also_proposes_placements_of_less_memory(self):
        problem = problems.build_task_problem(
            [(9, 1, 1)] * 4, [(0, 1, 0)], resident_bytes=[3, 2, 2, 2], memory_bytes=[99, 12, 12]
        )
        held = [max(np.bincount(row, [3, 2, 2, 2], 3)[1:]) for row in propose(problem)]
        self.assertLessEqual(min(held), 6)


if __name__ == "__main__":
    absltest.main()
