import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.group_memory import compute_peak_bytes, estimate_group_memories
from tf_placer.simulation.simulator import Simulator


class GroupMemoryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Two layers forward and backward: 0 and 1 keep tensors for 3 and 2.
        self.problem = problems.build_task_problem(
            [(1, 1)] * 4,
            [(0, 1, 10), (0, 3, 20), (1, 2, 30), (2, 3, 40)],
            groups=[0, 1, 1, 0],
            resident_bytes=[100, 200, 0, 0],
            temp_bytes=[7, 3, 5, 0],
        )

    def test_counts_resident_memory_and_tensors_alive_at_the_peak(self):
        # The peak is while 2 runs: the tensor from 0 to 3, and the input and output of 2.
        memory = estimate_group_memories(self.problem)[0]
        self.assertEqual(memory.kept_bytes.tolist(), [100 + 20, 200 + 30 + 40])
        self.assertEqual(memory.temporary_bytes.tolist(), [7, 5])

    def test_counts_copies_on_other_devices_once(self):
        memory = estimate_group_memories(self.problem)[0]
        # The 40 bytes from 2 are the only tensor alive between groups, from group 1 to 0.
        self.assertEqual(memory.compute_held_bytes(np.array([0, 0]), 2).tolist(), [390 + 7, 0])
        self.assertEqual(
            memory.compute_held_bytes(np.array([0, 1]), 2).tolist(), [120 + 40 + 7, 270 + 5]
        )
        without = memory.drop_copies()
        self.assertEqual(
            without.compute_held_bytes(np.array([0, 1]), 2).tolist(), [120 + 7, 270 + 5]
        )
        problem = problems.build_task_problem([(1, 1)] * 3, [(0, 1, 10)])
        problem = dataclasses.replace(
            problem, consumer_start=np.array([0, 2]), consumers=np.array([1, 2])
        )
        self.assertEqual(
            estimate_group_memories(problem)[0].compute_held_bytes(np.array([0, 1, 1]), 2).tolist(),
            [10, 10],
        )

    def test_only_copies_of_a_tensor_that_shares_memory_take_memory(self):
        problem = problems.build_task_problem([(1, 1)] * 2, [(0, 1, 10)], resident_bytes=[10, 0])
        problem = dataclasses.replace(problem, local_bytes=np.array([0]))
        memory = estimate_group_memories(problem)[0]
        self.assertEqual(memory.compute_held_bytes(np.array([0, 0]), 2).tolist(), [10, 0])
        self.assertEqual(memory.compute_held_bytes(np.array([0, 1]), 2).tolist(), [10, 10])

    def test_further_instants_are_peaks_of_other_groups(self):
        # Groups are single operations: 0 and 1 hold 9 bytes for 2, then 2 and 3 hold 5 for 4.
        problem = problems.build_task_problem(
            [(1, 1)] * 5, [(0, 1, 4), (1, 2, 5), (2, 3, 2), (3, 4, 3)]
        )
        memories = estimate_group_memories(problem)
        # The instants are those when 1 and 3 run; at no other instant does a group hold more.
        self.assertEqual(
            [memory.kept_bytes.tolist() for memory in memories], [[4, 5, 0, 0, 0], [0, 0, 2, 3, 0]]
        )
        most = compute_peak_bytes(memories, np.array([0, 0, 1, 1, 1]), 2)
        self.assertEqual(most.tolist(), [9, 5])

    def test_is_the_peak_of_the_simulator_on_a_single_device(self):
        # The order is that of the simulator if there are no temporaries and all times are equal.
        rng = np.random.default_rng(0)
        for _ in range(100):
            problem = random_problems.random_problem(rng)
            count = problem.num_operations
            problem = dataclasses.replace(
                problem,
                devices=(dataclasses.replace(problem.devices[0], slots=1, transfer_share=0.0),),
                links=(),
                compute_secs=np.ones([count, 1]),
                temp_bytes=np.zeros(count, np.int64),
            )
            placement = np.zeros(problem.num_groups, np.int32)
            peak = Simulator(problem, threads=1).simulate(placement[None]).peak_bytes[0]
            held = estimate_group_memories(problem)[0].compute_held_bytes(placement, 1)
            self.assertEqual(held.tolist(), peak.tolist())


if __name__ == "__main__":
    absltest.main()
