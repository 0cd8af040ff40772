"""Tests of finding the devices of this computer."""

from __future__ import annotations

import os
from unittest import mock

from absl.testing import absltest

from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError


class AttachedMachineTest(absltest.TestCase):
    def test_the_first_device_is_the_cpu_with_the_memory_of_the_computer(self):
        machine = find_machine()
        cpu = machine.devices[0]
        self.assertEqual(cpu.name, "/job:localhost/replica:0/task:0/device:CPU:0")
        self.assertEqual(cpu.type, "CPU")
        self.assertGreater(cpu.memory_bytes, 2**28)
        self.assertLessEqual(
            cpu.memory_bytes, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        )
        self.assertEqual({device.type for device in machine.devices[1:]} - {"GPU"}, set())
        self.assertEqual((machine.spec, machine.kind), ("attached", "attached"))

    def test_no_answer_is_an_error(self):
        with (
            mock.patch("tf_placer.machines.session_devices._DISCOVERY_TIMEOUT_SECS", 0.0),
            self.assertRaisesRegex(MachineError, "cannot list the attached devices: no answer"),
        ):
            find_machine("attached")


if __name__ == "__main__":
    absltest.main()
