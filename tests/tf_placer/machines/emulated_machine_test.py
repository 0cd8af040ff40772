"""Tests of described machines whose GPUs are emulated."""

from __future__ import annotations

from unittest import mock

import tensorflow as tf
from absl.testing import absltest, parameterized

from tf_placer.machines import computer_memory
from tf_placer.machines.computer_memory import read_computer_memory_bytes
from tf_placer.machines.emulated_machine import parse_emulation_options
from tf_placer.machines.gpu_memory import compute_usable_bytes
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError


class EmulatedMachineTest(parameterized.TestCase):
    def test_has_the_devices_and_links_of_the_described_machine(self):
        machine, described = find_machine("emulated:4xK80"), find_machine("4xK80")
        self.assertEqual((machine.spec, machine.kind), ("emulated:4xK80", "emulated"))
        self.assertEqual(
            [device.name for device in machine.devices],
            [device.name for device in described.devices],
        )
        self.assertEqual(machine.links, described.links)
        self.assertTrue(machine.backend.in_one_process)

    def test_gpus_have_the_memory_that_tensorflow_can_use(self):
        # The memory that a session of TensorFlow 2.14 and of 2.21 lists of a K80.
        self.assertEqual(compute_usable_bytes(11_996_758_016), 11_276_952_576)
        self.assertEqual(compute_usable_bytes(1 << 30), (1 << 30) - (255 << 20))
        self.assertEqual(compute_usable_bytes(90 << 20), 90 << 20)
        device = find_machine("emulated:2xK80").devices[1]
        self.assertEqual(device.memory_bytes, 11_276_952_576)

    def test_the_cpu_has_the_memory_of_this_computer(self):
        cpu = find_machine("emulated:2xK80").devices[0]
        self.assertEqual(cpu.memory_bytes, read_computer_memory_bytes())

    def test_rejects_gpus_whose_allocator_tables_exceed_the_memory_of_the_host(self):
        with mock.patch.object(computer_memory, "read_computer_memory_bytes", return_value=2**34):
            self.assertEqual(find_machine("emulated:4xK80").devices[0].memory_bytes, 2**34)
            with self.assertRaisesRegex(
                MachineError, "'emulated:8xH200': .* take 33 GiB, and this computer has 16 GiB"
            ):
                find_machine("emulated:8xH200")
            config = tf.compat.v1.ConfigProto()
            config.gpu_options.per_process_gpu_memory_fraction = 0.1
            find_machine("emulated:8xH200", config)

    def test_emulates_unequal_gpus(self):
        fast, slow = find_machine("emulated:1xV100+1xK80").devices[1:]
        self.assertEqual((fast.model, slow.model), ("V100", "K80"))
        self.assertEqual(slow.memory_bytes, 11_276_952_576)
        self.assertGreater(fast.memory_bytes, slow.memory_bytes)

    def test_machines_of_another_time_cannot_be_emulated(self):
        message = "'emulated:colocrl-2017-2xK80': a K80-2017 cannot be emulated, .* plan for"
        with self.assertRaisesRegex(MachineError, message):
            find_machine("emulated:colocrl-2017-2xK80")

    def test_sockets_cannot_be_emulated(self):
        with self.assertRaisesRegex(MachineError, "only a CPU and GPUs of one process"):
            find_machine("emulated:2xEPYC-7742-socket")

    def test_parses_options(self):
        options = parse_emulation_options("emulated:2xP100,values,slowdown=2.5")
        self.assertEqual((options.machine, options.slowdown), ("2xP100", 2.5))
        self.assertTrue(options.computes_values)
        self.assertTrue(find_machine("emulated:2xP100,values").computes_values)
        self.assertFalse(find_machine("emulated:2xP100").computes_values)

    @parameterized.parameters(
        ("emulated:2xK80,fast", "unknown option 'fast'"),
        ("emulated:2xK80,slowdown=0.5", "unknown option 'slowdown=0.5'"),
        ("emulated:nothing", "unknown machine 'nothing'"),
    )
    def test_rejects_unknown_machines_and_options(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)


class SessionConfigTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.config = tf.compat.v1.ConfigProto()
        self.whole = find_machine("emulated:4xK80")

    def find(self):
        return find_machine("emulated:4xK80", self.config)

    def names(self) -> list[str]:
        return [device.name.rpartition(":device:")[2][-5:] for device in self.find().devices]

    def test_ignores_options_that_do_not_concern_gpus(self):
        self.config.gpu_options.allow_growth = True
        self.config.device_count["CPU"] = 1
        self.assertEqual(self.find(), self.whole)

    def test_device_count_limits_the_gpus(self):
        self.config.device_count["GPU"] = 2
        self.assertEqual(self.names(), ["CPU:0", "GPU:0", "GPU:1"])
        self.assertLen(self.find().links, 3 * 2)
        self.config.device_count["GPU"] = 0
        self.assertEqual(self.names(), ["CPU:0"])

    def test_visible_gpus_are_numbered_from_zero_and_keep_their_links(self):
        self.config.gpu_options.visible_device_list = "3, 1"
        machine = self.find()
        self.assertEqual(self.names(), ["CPU:0", "GPU:0", "GPU:1"])

        def link(machine, source, destination):
            names = [device.name for device in machine.devices]
            [found] = [
                each
                for each in machine.links
                if (each.source, each.destination) == (names[source], names[destination])
            ]
            return found.latency_secs, found.bandwidth_bytes_per_sec, found.channel

        self.assertEqual(link(machine, 1, 2), link(self.whole, 4, 2))
        self.assertEqual(link(machine, 0, 1), link(self.whole, 0, 4))

    def test_the_memory_fraction_applies_to_the_whole_memory(self):
        self.config.gpu_options.per_process_gpu_memory_fraction = 0.25
        described = find_machine("4xK80").devices[1]
        self.assertEqual(self.find().devices[1].memory_bytes, described.memory_bytes // 4)
        self.assertEqual(self.find().devices[0], self.whole.devices[0])

    def test_rejects_missing_visible_gpus(self):
        self.config.gpu_options.visible_device_list = "0,7"
        with self.assertRaisesRegex(MachineError, "visible_device_list '0,7' .* has no GPU '7'"):
            self.find()


if __name__ == "__main__":
    absltest.main()
