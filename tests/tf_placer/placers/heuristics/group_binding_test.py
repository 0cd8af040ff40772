import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import group_memories, held_bytes
from tf_placer.problem.problem_groups import legal_devices


def binding_of(problem):
    memory_bytes = [device.memory_bytes for device in problem.devices]
    return GroupBinding(legal_devices(problem), group_memories(problem), memory_bytes)


def with_an_empty_group(problem):
    """The problem with one more operation, which holds nothing, in a group of its own."""
    return dataclasses.replace(
        problem,
        operation_names=(*problem.operation_names, "empty"),
        compute_secs=np.concatenate([problem.compute_secs, np.ones([1, problem.num_devices])]),
        resident_bytes=np.append(problem.resident_bytes, 0),
        temp_bytes=np.append(problem.temp_bytes, 0),
        groups=np.append(problem.groups, problem.num_groups),
    )


class GroupBindingTest(absltest.TestCase):
    def test_a_bound_group_stays(self):
        binding = binding_of(problems.task_problem([(1, 1, 1), (1, float("inf"), 1)]))
        self.assertEqual(binding.choices(1), [0, 2])
        self.assertFalse(binding.can_go(1, 1))
        binding.bind(1, 2)
        binding.bind(1, 0)
        self.assertEqual(binding.choices(1), [2])
        self.assertEqual([binding.can_go(1, device) for device in range(3)], [False, False, True])
        self.assertEqual(binding.placement().tolist(), [0, 2])

    def test_groups_go_where_there_is_room_and_else_where_least_is_missing(self):
        problem = problems.task_problem(
            [(1, 1, 1)] * 3, resident_bytes=[4, 5, 7], memory_bytes=[3, 10, 6]
        )
        binding = binding_of(problem)
        self.assertEqual([binding.choices(group) for group in range(3)], [[1, 2], [1, 2], [1]])
        binding.bind(1, 1)
        self.assertEqual([binding.choices(group) for group in range(3)], [[1, 2], [1], [2]])

    def test_temporaries_share_their_room(self):
        problem = problems.task_problem(
            [(1,)] * 3, temp_bytes=[4, 6, 7], resident_bytes=[1, 1, 0], memory_bytes=8
        )
        binding = binding_of(problem)
        binding.bind(0, 0)
        self.assertEqual(binding.room_after(1, 0), 0)
        binding.bind(1, 0)
        self.assertEqual(binding.room_after(2, 0), -1)

    def test_keeps_room_for_what_a_group_will_read_wherever_it_is_made(self):
        binding = binding_of(problems.task_problem([(1, 1)] * 2, [(0, 1, 6)], memory_bytes=10))
        binding.bind(1, 0)
        self.assertEqual(binding.room_after(0, 0), 4)
        self.assertEqual(binding.room_after(0, 1), 4)

    def test_takes_what_the_placement_holds_in_the_end_and_gives_nothing_back(self):
        rng = np.random.default_rng(1)
        for _ in range(200):
            problem = with_an_empty_group(random_problems.random_problem(rng))
            legal, memories = legal_devices(problem), group_memories(problem)
            *groups, empty = range(problem.num_groups)
            binding = GroupBinding(legal, memories, [0.0] * problem.num_devices)
            rooms = np.full(legal.shape, np.inf)
            for group in rng.permutation(groups).tolist():
                for other, device in zip(*np.nonzero(legal), strict=True):
                    if binding.allowed(other) != [device]:
                        room = binding.room_after(other, device)
                        self.assertLessEqual(room, rooms[other, device])
                        rooms[other, device] = room
                binding.bind(group, int(rng.choice(binding.allowed(group))))
            held = held_bytes(memories, binding.placement(), problem.num_devices)
            left = [binding.room_after(empty, device) for device in range(problem.num_devices)]
            self.assertEqual(left, (-held).tolist())


if __name__ == "__main__":
    absltest.main()
