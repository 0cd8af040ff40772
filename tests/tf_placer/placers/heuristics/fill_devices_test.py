import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tf_placer.placers.heuristics.fill_devices import fill_devices
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.problem.problem_groups import legal_devices


def fill(sizes, memory_bytes, devices, legal=None):
    num_devices = len(memory_bytes)
    secs = np.ones([len(sizes), num_devices])
    problem = problems.build_task_problem(
        np.where(True if legal is None else legal, secs, np.inf).tolist(), resident_bytes=sizes
    )
    binding = GroupBinding(legal_devices(problem), estimate_group_memories(problem), memory_bytes)
    fill_devices(range(len(sizes)), devices, binding)
    return binding.build_placement().tolist()


class FillDevicesTest(absltest.TestCase):
    def test_fills_the_next_device_when_a_group_does_not_fit_and_never_returns(self):
        self.assertEqual(fill([3, 3, 5, 1, 9], [99, 7, 6], [1, 2, 0]), [1, 1, 2, 2, 0])

    def test_the_last_groups_go_to_devices_with_room(self):
        self.assertEqual(fill([3, 9, 4, 4], [9, 7], [1, 0]), [1, 0, 1, 0])

    def test_an_illegal_group_does_not_end_filling_a_device(self):
        legal = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]], np.bool_)
        self.assertEqual(fill([1, 1, 1], [9, 9, 9], [1, 2, 0], legal), [1, 0, 1])


if __name__ == "__main__":
    absltest.main()
