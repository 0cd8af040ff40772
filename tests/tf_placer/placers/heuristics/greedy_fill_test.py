import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.greedy_fill import GreedyFill
from tf_placer.problem.problem_groups import group_graph, legal_devices


class GreedyFillTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return GreedyFill(groups, legal, seed=seed, problem=problem)

    def test_fills_the_accelerators_in_order_and_then_the_cpu(self):
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 5, resident_bytes=[4] * 5, memory_bytes=[99, 8, 8]
        )
        placer = GreedyFill(group_graph(problem), legal_devices(problem), problem=problem)
        # The shares 0.9, 0.75 and 0.5 of 8 bytes all have room for one group.
        self.assertEqual(placer.propose(9).tolist(), [[1, 1, 2, 2, 0], [1, 2, 0, 0, 0]])

    def test_fills_by_layers(self):
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 4, resident_bytes=[4] * 4, memory_bytes=[99, 8, 8]
        )
        groups = dataclasses.replace(group_graph(problem), layers=np.array([1, 0, 1, 0], np.int32))
        placer = GreedyFill(groups, legal_devices(problem), problem=problem)
        self.assertEqual(placer.propose(1).tolist(), [[2, 1, 2, 1]])

    def test_uses_one_accelerator_if_everything_fits(self):
        problem = problems.build_task_problem([(1, 1, 1)] * 4, [(0, 1, 9), (1, 2, 9), (2, 3, 9)])
        placer = GreedyFill(group_graph(problem), legal_devices(problem), problem=problem)
        self.assertEqual(placer.propose(9).tolist(), [[1, 1, 1, 1]])


if __name__ == "__main__":
    absltest.main()
