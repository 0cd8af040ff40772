"""Tests of finding machines."""

from __future__ import annotations

import os
import socket
from unittest import mock

from absl.testing import absltest, parameterized

from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, MachineError


def _with_cores(*cores: int):
    return mock.patch.object(os, "sched_getaffinity", lambda pid: set(cores))


class LocalMachineTest(parameterized.TestCase):
    def test_the_cores_are_shared_out_without_overlap(self):
        with _with_cores(0, 1, 2, 5, 7):
            machine = find_machine("local:2")
        self.assertEqual(
            machine.devices,
            (
                Device("/job:worker/replica:0/task:0/device:CPU:0", "CPU", None, (0, 1)),
                Device("/job:worker/replica:0/task:1/device:CPU:0", "CPU", None, (2, 5, 7)),
            ),
        )
        self.assertEqual(machine.kind, "local")
        self.assertEqual(machine.spec, "local:2")

    def test_links_of_a_machine_that_is_there_are_still_to_be_measured(self):
        with _with_cores(0, 1, 2):
            self.assertEqual(find_machine("local:3").links, ())

    def test_more_processes_than_cores_go_round_with_a_warning(self):
        with _with_cores(3, 4), self.assertLogs(level="WARNING") as logs:
            machine = find_machine("local:5")
        self.assertEqual([d.cores for d in machine.devices], [(3,), (4,), (3,), (4,), (3,)])
        self.assertIn("5 processes share 2 cores", logs.output[0])

    def test_a_memory_limit_is_in_mebibytes(self):
        machine = find_machine("local:1,memory_mb=500")
        self.assertEqual([d.memory_bytes for d in machine.devices], [500 * 2**20])

    @parameterized.parameters(
        ("local:0", "from 1 to 256, not '0'"),
        ("local:-1", "from 1 to 256, not '-1'"),
        ("local:", "from 1 to 256, not ''"),
        ("local:two", "from 1 to 256, not 'two'"),
        ("local:999999", "from 1 to 256, not '999999'"),
        ("local:2,memory=5", "unknown option 'memory'"),
        ("local:2,memory_mb=0", "memory_mb must be a number of MiB, from 1 to 999999999, not '0'"),
        ("local:2,memory_mb=\uff15", "memory_mb must be a number"),
        (f"local:2,memory_mb={'9' * 50}", "memory_mb must be a number"),
        ("local:\uff12", "from 1 to 256, not '\uff12'"),
        (f"local:{'9' * 50}", "from 1 to 256"),
        ("local:2,memory_mb", "memory_mb must be"),
        ("gpu", "unknown machine 'gpu': expected 'attached', 'local:N'"),
        ("4xK81", "unknown machine '4xK81': .* or a name with a number of GPUs for N, of NxK80, "),
        ("", "unknown machine ''"),
        ("grpc://localhost", "is not an address like 'grpc://HOST:PORT'"),
        ("grpc://localhost:99999", "is not an address"),
    )
    def test_a_bad_description_is_one_clear_sentence(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)

    def test_no_message_is_long(self):
        for spec in ("x" * 10**6, f"local:{'9' * 10**6}", f"local:2,{'x' * 10**6}=1"):
            with self.assertRaises(MachineError) as caught:
                find_machine(spec)
            self.assertLess(len(str(caught.exception)), 500)

    def test_an_unreachable_cluster_is_named(self):
        with socket.socket() as listener:
            listener.bind(("localhost", 0))
            port = listener.getsockname()[1]
            with self.assertRaisesRegex(
                MachineError,
                f"no TensorFlow server answers at grpc://localhost:{port}: Connection refused",
            ):
                find_machine(f"grpc://localhost:{port}")


class DescribedMachineTest(absltest.TestCase):
    def test_a_name_of_the_catalogue_is_a_machine(self):
        machine = find_machine("2xK80")
        self.assertEqual((machine.spec, machine.kind), ("2xK80", "described"))
        self.assertEqual([device.type for device in machine.devices], ["CPU", "GPU", "GPU"])

    def test_a_path_is_that_of_a_machine_file(self):
        path = self.create_tempfile("box.json", "{}").full_path
        with self.assertRaisesRegex(
            MachineError, f'machine file {path}: the machine has no entry "format"'
        ):
            find_machine(path)


class AttachedMachineTest(absltest.TestCase):
    def test_the_cpu_comes_first_with_the_memory_of_the_computer(self):
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
            mock.patch("tf_placer.machines.lookup._DISCOVERY_TIMEOUT_SECS", 0.0),
            self.assertRaisesRegex(MachineError, "cannot list the attached devices: no answer"),
        ):
            find_machine("attached")


if __name__ == "__main__":
    absltest.main()
