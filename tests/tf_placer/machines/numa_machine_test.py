"""Tests of machines of processes on NUMA nodes or groups of cores."""

from __future__ import annotations

import os
import pathlib
from unittest import mock

from absl.testing import absltest, parameterized

from tests.tf_placer.machines.sysfs import write_nodes
from tf_placer.machines import numa_machine, numa_nodes
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, Machine, MachineError

_GIB = 2**30
_NAMES = tuple(f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(4))


class NumaMachineTest(absltest.TestCase):
    def find(self, nodes, usable=range(16), computer_bytes=1024 * _GIB):
        directory = pathlib.Path(self.create_tempdir().full_path)
        write_nodes(directory, nodes)
        with (
            mock.patch.object(numa_nodes, "_NODES", directory),
            mock.patch.object(os, "sched_getaffinity", lambda pid: set(usable)),
            mock.patch.object(numa_machine, "read_computer_memory_bytes", lambda: computer_bytes),
        ):
            return find_machine("numa")

    def test_every_node_is_a_process_on_its_cores_with_its_memory(self):
        machine = self.find({0: ("0-1,4-5", 8 * _GIB), 1: ("2-3,6-7", 4 * _GIB)})
        self.assertEqual((machine.spec, machine.kind, machine.links), ("numa", "numa", ()))
        self.assertEqual(
            machine.devices,
            (
                Device(_NAMES[0], "CPU", 8 * _GIB, (0, 1, 4, 5)),
                Device(_NAMES[1], "CPU", 4 * _GIB, (2, 3, 6, 7)),
            ),
        )
        self.assertEqual(Machine.from_json(machine.to_json()), machine)

    def test_processes_have_the_numbers_of_nodes_that_may_be_used(self):
        nodes = {k: (f"{2 * k}-{2 * k + 1}", _GIB) for k in range(4)}
        machine = self.find(nodes, usable=[2, 3, 7])
        self.assertEqual([device.name for device in machine.devices], [*_NAMES[:2]])
        self.assertEqual([device.cores for device in machine.devices], [(2, 3), (7,)])

    def test_a_node_has_no_more_memory_than_the_container(self):
        machine = self.find({0: ("0", 8 * _GIB), 1: ("1", 0)}, computer_bytes=2 * _GIB)
        self.assertEqual([device.memory_bytes for device in machine.devices], [2 * _GIB, None])

    def test_one_node_is_an_error_that_names_other_machines(self):
        message = (
            "machine 'numa': the cores that this process may use are on one NUMA node of this "
            "computer: divide them evenly by 'local:2', or into groups by 'cores:0-1/2'$"
        )
        for nodes in ({0: ("0-2", _GIB)}, {0: ("0-2", _GIB), 1: ("", _GIB)}, {}):
            with self.assertRaisesRegex(MachineError, message):
                self.find(nodes, usable=[0, 1, 2])
        with self.assertRaisesRegex(MachineError, "by 'cores:5'$"):
            self.find({0: ("0-7", _GIB), 1: ("8-15", _GIB)}, usable=[5])


class CoreGroupsTest(parameterized.TestCase):
    def find(self, spec, usable=range(16)):
        with mock.patch.object(os, "sched_getaffinity", lambda pid: set(usable)):
            return find_machine(spec)

    def test_every_group_is_a_process_on_its_cores(self):
        machine = self.find("cores:0-3,8/4-7,9,10/15")
        self.assertEqual((machine.spec, machine.kind), ("cores:0-3,8/4-7,9,10/15", "numa"))
        cores = [(0, 1, 2, 3, 8), (4, 5, 6, 7, 9, 10), (15,)]
        expected = [
            Device(name, "CPU", None, group) for name, group in zip(_NAMES, cores, strict=False)
        ]
        self.assertEqual([*machine.devices], expected)

    def test_groups_that_are_the_shares_of_a_local_machine_are_its_devices(self):
        usable = [0, 1, 2, 5, 7]
        same = self.find("cores:0-1/2,5,7", usable).devices
        self.assertEqual(same, self.find("local:2", usable).devices)

    @parameterized.parameters(
        ("cores:", "group 1 is empty: name groups of cores such as 'cores:0-7/8-15'"),
        ("cores:0/", "group 2 is empty"),
        ("cores:0//1", "group 2 is empty"),
        ("cores:0/one", "'one' is neither the number of a core nor a range such as 8-15"),
        ("cores:0-3/3-4", "core 3 is in group 1 and again in group 2: name it once"),
        ("cores:0,0/1", "core 0 is in group 1 and again in group 1"),
        ("cores:0/16", "core 16 of group 2 does not exist, or this process may not use it: .*0-15"),
        ("cores:0-99999", "core 16 of group 1 does not exist"),
        ("cores:0 /1", "'0 ' is neither"),
        ("cores:0/1,memory_mb=5", "'memory_mb=5' is neither"),
        ("cores:" + "/".join(map(str, range(257))), "there are at most 256 groups, not 257"),
    )
    def test_rejects_wrong_groups(self, spec, message):
        with self.assertRaisesRegex(MachineError, f"^machine 'cores:.*: {message}"):
            self.find(spec)

    def test_rejects_cores_that_the_process_may_not_use(self):
        with self.assertRaisesRegex(MachineError, "core 1 of group 2 .* it may use 0,2-3$"):
            self.find("cores:0/1", usable=[0, 2, 3])

    def test_messages_are_short(self):
        for spec in ("cores:" + "9" * 10**6, "cores:" + "0/" * 10**5):
            with self.assertRaises(MachineError) as caught:
                self.find(spec)
            self.assertLess(len(str(caught.exception)), 500)


if __name__ == "__main__":
    absltest.main()
