import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import placer_conformance, problems
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.m_topo import MTopo, compute_equal_share
from tf_placer.problem.problem_groups import group_graph, legal_devices


def propose(problem):
    return MTopo(group_graph(problem), legal_devices(problem), problem=problem).propose(99)


class MTopoTest(placer_conformance.PlacerConformance, absltest.TestCase):
    def new_placer(self, groups, legal, seed):
        problem = problems.build_group_problem(groups, np.ones([groups.num_groups, 3], np.bool_))
        return MTopo(groups, legal, seed=seed, problem=problem)

    def test_fills_devices_up_to_the_mean_and_one_more_group_in_topological_order(self):
        # The share of the 15 bytes is 15 / 2 + 4 without the CPU and 15 / 3 + 4 with it. Group 0 is
        # last in the order.
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 6, [(5, 0, 0)], resident_bytes=[4, 2, 2, 2, 2, 3]
        )
        self.assertEqual(propose(problem).tolist(), [[2, 1, 1, 1, 1, 1], [2, 1, 1, 1, 1, 2]])

    def test_no_device_ever_holds_more_than_its_share(self):
        rng = np.random.default_rng(0)
        for _ in range(50):
            count = int(rng.integers(3, 20))
            problem = problems.build_task_problem(
                [(1, 1, 1)] * count,
                resident_bytes=rng.integers(0, 10, count),
                temp_bytes=rng.integers(0, 10, count),
            )
            memory = estimate_group_memories(problem)[0]
            for row in propose(problem):
                held = memory.compute_held_bytes(row, 3)
                share = compute_equal_share(memory, 3 if (row == 0).any() else 2)
                self.assertLessEqual(held.max(), share)

    def test_does_not_overfill_a_device_that_is_smaller_than_a_share(self):
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 4, resident_bytes=[4] * 4, memory_bytes=[99, 5, 99]
        )
        for row in propose(problem):
            self.assertEqual(np.count_nonzero(row == 1), 1)


if __name__ == "__main__":
    absltest.main()
