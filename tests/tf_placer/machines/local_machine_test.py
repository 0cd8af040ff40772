"""Tests of machines of processes on this computer."""

from __future__ import annotations

import os
from unittest import mock

from absl.testing import absltest, parameterized

from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Device, MachineError


def _patch_cores(*cores: int):
    return mock.patch.object(os, "sched_getaffinity", lambda pid: set(cores))


class LocalMachineTest(parameterized.TestCase):
    def test_processes_have_disjoint_cores(self):
        with _patch_cores(0, 1, 2, 5, 7):
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

    def test_links_are_not_measured_yet(self):
        with _patch_cores(0, 1, 2):
            self.assertEqual(find_machine("local:3").links, ())

    def test_warns_if_processes_share_cores(self):
        with _patch_cores(3, 4), self.assertLogs(level="WARNING") as logs:
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
    )
    def test_rejects_invalid_numbers_and_options(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)


if __name__ == "__main__":
    absltest.main()
