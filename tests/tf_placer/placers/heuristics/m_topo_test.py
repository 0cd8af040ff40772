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
                devices = problem.devices if (row == 0).any() else problem.devices[1:]
                share = compute_equal_share(memory, [each.memory_bytes for each in devices])
                self.assertLessEqual(held.max(), share)

    def test_does_not_overfill_a_device_that_is_smaller_than_a_share(self):
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 4, resident_bytes=[4] * 4, memory_bytes=[99, 5, 99]
        )
        for row in propose(problem):
            self.assertEqual(np.count_nonzero(row == 1), 1)

    def test_larger_devices_take_what_smaller_ones_have_no_room_for(self):
        # The groups hold 40 bytes, of which each device with 8 bytes has room for one or two.
        problem = problems.build_task_problem(
            [(1, 1, 1, 1)] * 10, resident_bytes=[4] * 10, memory_bytes=[8, 8, 8, 99]
        )
        for row in propose(problem):
            held = np.bincount(row, problem.resident_bytes, 4)
            self.assertTrue((held <= [8, 8, 8, 99]).all(), row)

    def test_fits_unequal_devices_that_any_order_fits(self):
        rng = np.random.default_rng(1)
        for _ in range(200):
            count, num_devices = int(rng.integers(4, 20)), int(rng.integers(2, 5))
            sizes = rng.integers(1, 10, count)
            memory = rng.integers(9, 120, num_devices)
            # Filled in any order, a device lacks less than the largest group.
            if np.maximum(memory[1:] - sizes.max(), 0).sum() < sizes.sum():
                continue
            problem = problems.build_task_problem(
                [[1] * num_devices] * count, resident_bytes=sizes, memory_bytes=memory.tolist()
            )
            for row in propose(problem):
                held = np.bincount(row, sizes, num_devices)
                self.assertTrue((held <= memory).all(), (sizes, memory, row))


if __name__ == "__main__":
    absltest.main()
