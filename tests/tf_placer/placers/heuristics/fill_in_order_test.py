import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tf_placer.placers.heuristics.fill_in_order import fill_in_order
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import group_memories
from tf_placer.problem.problem_groups import legal_devices


def fill(sizes, memory_bytes, devices, legal=None):
    num_devices = len(memory_bytes)
    secs = np.ones([len(sizes), num_devices])
    problem = problems.task_problem(
        np.where(True if legal is None else legal, secs, np.inf).tolist(), resident_bytes=sizes
    )
    binding = GroupBinding(legal_devices(problem), group_memories(problem), memory_bytes)
    fill_in_order(range(len(sizes)), devices, binding)
    return binding.placement().tolist()


class FillInOrderTest(absltest.TestCase):
    def test_goes_on_with_the_next_device_when_one_does_not_fit_and_never_back(self):
        self.assertEqual(fill([3, 3, 5, 1, 9], [99, 7, 6], [1, 2, 0]), [1, 1, 2, 2, 0])

    def test_the_last_ones_go_where_there_is_room(self):
        self.assertEqual(fill([3, 9, 4, 4], [9, 7], [1, 0]), [1, 0, 1, 0])

    def test_a_group_that_may_not_go_there_does_not_end_the_turn(self):
        legal = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]], np.bool_)
        self.assertEqual(fill([1, 1, 1], [9, 9, 9], [1, 2, 0], legal), [1, 0, 1])


if __name__ == "__main__":
    absltest.main()
