"""Tests of files with the device of every group."""

import dataclasses

import numpy as np
from absl.testing import absltest

from tests.tf_placer.small_problem import rename_devices
from tests.tf_placer.two_chains import two_chain_problem
from tf_placer.problem.assignment_file import assign_groups

NAMES = ("/device:CPU:0", "/device:GPU:0", "/device:GPU:1")


class AssignmentFileTest(absltest.TestCase):
    def assign(self, device: str):
        problem = rename_devices(two_chain_problem(2, 3), NAMES)
        return assign_groups(problem, dict.fromkeys(problem.operation_names, device))

    def test_devices_may_be_named_as_in_tables(self):
        for name in ("/device:GPU:1", "GPU:1", "/GPU:1", "device:GPU:1"):
            self.assertEqual(set(self.assign(name)), {2}, name)

    def test_operations_of_a_group_are_together(self):
        problem = rename_devices(two_chain_problem(2, 3), NAMES)
        problem = dataclasses.replace(problem, groups=np.array([0, 0, 0, 1], np.int32))
        given = ("CPU:0", "GPU:1", "GPU:1", "GPU:0")
        devices = dict(zip(problem.operation_names, given, strict=True))
        with self.assertRaisesRegex(ValueError, "but other operations of its group 0 elsewhere"):
            assign_groups(problem, devices)
        lines = []
        self.assertEqual(assign_groups(problem, devices, lines.append), (2, 1))
        self.assertStartsWith(lines[0], "1 of 2 groups, whose operations go together, have several")

    def test_a_name_of_several_devices_or_of_none_is_refused(self):
        for name in ("GPU", "tpu", "/GPU:7", ""):
            with self.assertRaisesRegex(ValueError, f"on .{name}., which the problem lacks"):
                self.assign(name)


if __name__ == "__main__":
    absltest.main()
