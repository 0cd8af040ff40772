import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.group_memory import group_memories, held_bytes
from tf_placer.simulation.simulator import Simulator


class GroupMemoryTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Two layers forward and back: 0 and 1 keep something for 3 and 2.
        self.problem = problems.task_problem(
            [(1, 1)] * 4,
            [(0, 1, 10), (0, 3, 20), (1, 2, 30), (2, 3, 40)],
            groups=[0, 1, 1, 0],
            resident_bytes=[100, 200, 0, 0],
            temp_bytes=[7, 3, 5, 0],
        )

    def test_keeps_what_is_resident_and_what_is_alive_when_most_is(self):
        # Most is alive while 2 runs: what 0 keeps for 3, what 2 reads and what it makes.
        memory = group_memories(self.problem)[0]
        self.assertEqual(memory.kept_bytes.tolist(), [100 + 20, 200 + 30 + 40])
        self.assertEqual(memory.temporary_bytes.tolist(), [7, 5])

    def test_counts_copies_on_other_devices_once(self):
        memory = group_memories(self.problem)[0]
        # Of the tensors alive only the 40 bytes from 2 go from group to group, from 1 to 0.
        self.assertEqual(memory.on_devices(np.array([0, 0]), 2).tolist(), [390 + 7, 0])
        self.assertEqual(memory.on_devices(np.array([0, 1]), 2).tolist(), [120 + 40 + 7, 270 + 5])
        without = memory.without_copies()
        self.assertEqual(without.on_devices(np.array([0, 1]), 2).tolist(), [120 + 7, 270 + 5])
        problem = problems.task_problem([(1, 1)] * 3, [(0, 1, 10)])
        problem = dataclasses.replace(
            problem, consumer_start=np.array([0, 2]), consumers=np.array([1, 2])
        )
        self.assertEqual(
            group_memories(problem)[0].on_devices(np.array([0, 1, 1]), 2).tolist(), [10, 10]
        )

    def test_a_tensor_that_shares_memory_holds_nothing_but_its_copies_do(self):
        problem = problems.task_problem([(1, 1)] * 2, [(0, 1, 10)], resident_bytes=[10, 0])
        problem = dataclasses.replace(problem, local_bytes=np.array([0]))
        memory = group_memories(problem)[0]
        self.assertEqual(memory.on_devices(np.array([0, 0]), 2).tolist(), [10, 0])
        self.assertEqual(memory.on_devices(np.array([0, 1]), 2).tolist(), [10, 10])

    def test_other_instants_are_those_at_which_other_groups_hold_more(self):
        # 0 and 1 hold 9 bytes for 2, then 2 and 3 hold 5 for 4; groups are operations.
        problem = problems.task_problem([(1, 1)] * 5, [(0, 1, 4), (1, 2, 5), (2, 3, 2), (3, 4, 3)])
        memories = group_memories(problem)
        # The tensors of 0 and 1 while 1 runs, of 2 and 3 while 3 runs; no instant adds to these.
        self.assertEqual(
            [memory.kept_bytes.tolist() for memory in memories], [[4, 5, 0, 0, 0], [0, 0, 2, 3, 0]]
        )
        most = held_bytes(memories, np.array([0, 0, 1, 1, 1]), 2)
        self.assertEqual(most.tolist(), [9, 5])

    def test_is_the_peak_of_the_simulator_if_one_device_runs_all_in_turn(self):
        # Without temporaries and with times that are all alike.
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
            held = group_memories(problem)[0].on_devices(placement, 1)
            self.assertEqual(held.tolist(), peak.tolist())


if __name__ == "__main__":
    absltest.main()
