"""Tests of described machines whose GPUs are emulated."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from tf_placer.machines.emulated_machine import emulation_options
from tf_placer.machines.gpu_memory import usable_bytes
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError


class EmulatedMachineTest(parameterized.TestCase):
    def test_it_has_the_devices_and_links_of_the_described_machine(self):
        machine, described = find_machine("emulated:4xK80"), find_machine("4xK80")
        self.assertEqual((machine.spec, machine.kind), ("emulated:4xK80", "emulated"))
        self.assertEqual(
            [device.name for device in machine.devices],
            [device.name for device in described.devices],
        )
        self.assertEqual(machine.links, described.links)
        self.assertTrue(machine.in_one_process)

    def test_tensorflow_keeps_a_part_of_the_memory_for_itself(self):
        # The memory that a session of TensorFlow 2.14 and of 2.21 lists of a K80.
        self.assertEqual(usable_bytes(11_996_758_016), 11_276_952_576)
        self.assertEqual(usable_bytes(1 << 30), (1 << 30) - (255 << 20))
        device = find_machine("emulated:2xK80").devices[1]
        self.assertEqual(device.memory_bytes, 11_276_952_576)

    def test_options_follow_the_name(self):
        options = emulation_options("emulated:2xP100,values,slowdown=2.5")
        self.assertEqual((options.machine, options.slowdown), ("2xP100", 2.5))
        self.assertTrue(options.computes_values)
        self.assertTrue(find_machine("emulated:2xP100,values").computes_values)
        self.assertFalse(find_machine("emulated:2xP100").computes_values)

    @parameterized.parameters(
        ("emulated:2xK80,fast", "unknown option 'fast'"),
        ("emulated:2xK80,slowdown=0.5", "unknown option 'slowdown=0.5'"),
        ("emulated:nothing", "unknown machine 'nothing'"),
    )
    def test_what_is_none_is_refused(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)


if __name__ == "__main__":
    absltest.main()
