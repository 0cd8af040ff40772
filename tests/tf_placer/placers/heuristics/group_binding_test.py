import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.placers import problems
from tests.tf_placer.simulation import random_problems
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import compute_peak_bytes, estimate_group_memories
from tf_placer.problem.problem_groups import legal_devices


def make_binding(problem):
    memory_bytes = [device.memory_bytes for device in problem.devices]
    return GroupBinding(legal_devices(problem), estimate_group_memories(problem), memory_bytes)


def add_empty_group(problem):
    """Adds an operation without memory in a group of its own to a problem."""
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
        binding = make_binding(problems.build_task_problem([(1, 1, 1), (1, float("inf"), 1)]))
        self.assertEqual(binding.list_choices(1), [0, 2])
        self.assertFalse(binding.can_go(1, 1))
        binding.bind(1, 2)
        binding.bind(1, 0)
        self.assertEqual(binding.list_choices(1), [2])
        self.assertEqual([binding.can_go(1, device) for device in range(3)], [False, False, True])
        self.assertEqual(binding.build_placement().tolist(), [0, 2])

    def test_choices_have_room_or_the_smallest_lack_of_memory(self):
        problem = problems.build_task_problem(
            [(1, 1, 1)] * 3, resident_bytes=[4, 5, 7], memory_bytes=[3, 10, 6]
        )
        binding = make_binding(problem)
        self.assertEqual([binding.list_choices(group) for group in range(3)], [[1, 2], [1, 2], [1]])
        binding.bind(1, 1)
        self.assertEqual([binding.list_choices(group) for group in range(3)], [[1, 2], [1], [2]])

    def test_temporaries_share_memory(self):
        problem = problems.build_task_problem(
            [(1,)] * 3, temp_bytes=[4, 6, 7], resident_bytes=[1, 1, 0], memory_bytes=8
        )
        binding = make_binding(problem)
        binding.bind(0, 0)
        self.assertEqual(binding.compute_room(1, 0), 0)
        binding.bind(1, 0)
        self.assertEqual(binding.compute_room(2, 0), -1)

    def test_reserves_memory_for_inputs_of_a_group(self):
        binding = make_binding(
            problems.build_task_problem([(1, 1)] * 2, [(0, 1, 6)], memory_bytes=10)
        )
        binding.bind(1, 0)
        self.assertEqual(binding.compute_room(0, 0), 4)
        self.assertEqual(binding.compute_room(0, 1), 4)

    def test_takes_the_memory_of_the_final_placement_and_frees_none(self):
        rng = np.random.default_rng(1)
        for _ in range(200):
            problem = add_empty_group(random_problems.random_problem(rng))
            legal, memories = legal_devices(problem), estimate_group_memories(problem)
            *groups, empty = range(problem.num_groups)
            binding = GroupBinding(legal, memories, [0.0] * problem.num_devices)
            rooms = np.full(legal.shape, np.inf)
            for group in rng.permutation(groups).tolist():
                for other, device in zip(*np.nonzero(legal), strict=True):
                    if binding.list_allowed(other) != [device]:
                        room = binding.compute_room(other, device)
                        self.assertLessEqual(room, rooms[other, device])
                        rooms[other, device] = room
                binding.bind(group, int(rng.choice(binding.list_allowed(group))))
            held = compute_peak_bytes(memories, binding.build_placement(), problem.num_devices)
            left = [binding.compute_room(empty, device) for device in range(problem.num_devices)]
            self.assertEqual(left, (-held).tolist())


if __name__ == "__main__":
    absltest.main()
