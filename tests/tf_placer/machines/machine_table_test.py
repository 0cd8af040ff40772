"""Tests of one machine in detail."""

from __future__ import annotations

import os
from unittest import mock

from absl.testing import absltest

from tf_placer.machines.machine import MachineError
from tf_placer.machines.machine_table import build_machine_values, format_machine


def parse_rows(text: str) -> list[list[str]]:
    """Splits the lines of a text at two or more spaces."""
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()] for line in text.split("\n")
    ]


class MachineTableTest(absltest.TestCase):
    def test_shows_devices_links_and_sources(self):
        text = format_machine("4xK80")
        rows = parse_rows(text)
        self.assertIn(
            ["4", "GPU", "K80", "11.17 GiB", "10.19 GiB", "4.37 x 0.42", "240 x 0.75", "10.00 µs"],
            rows,
        )
        # Two boards of two GPUs have two connections to the processor in each direction.
        self.assertIn(["CPU to GPU", "4", "2", "11", "25.00 µs"], rows)
        self.assertIn(["GPU to CPU", "4", "2", "11", "25.00 µs"], rows)
        # Within a board each pair has a channel for each direction; 2 boards, 4 pairs across.
        self.assertIn(["GPU to GPU", "4", "4", "11", "25.00 µs"], rows)
        self.assertIn(["GPU to GPU", "8", "2", "9", "25.00 µs"], rows)
        for name in ("4xK80: Device Placement", "Haswell-18: Intel Xeon", "K80: One of the two"):
            self.assertIn(f"\n{name}", text)

    def test_names_the_models_of_unequal_gpus(self):
        rows = parse_rows(format_machine("1xA100+2xT4"))
        self.assertIn(["CPU to A100", "1", "1", "24", "25.00 µs"], rows)
        self.assertIn(["A100 to T4", "2", "1", "9", "25.00 µs"], rows)
        self.assertIn(["T4 to A100", "2", "2", "9", "25.00 µs"], rows)

    def test_shows_the_cores_and_memory_of_a_machine_that_is_there(self):
        usable = mock.patch.object(os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
        with usable:
            rows = parse_rows(format_machine("cores:0-2/5"))
            limited = parse_rows(format_machine("local:2,memory_mb=1024"))
            values = build_machine_values(["cores:0-2/5"])
        names = [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]
        self.assertEqual(rows[2:], [[names[0], "0-2", "-"], [names[1], "5", "-"]])
        self.assertIn([names[1], "2,5", "1.000 GiB"], limited)
        [machine] = values["machines"]
        self.assertEqual([each["cores"] for each in machine["devices"]], [(0, 1, 2), (5,)])
        self.assertEqual((machine["source"], values["device_classes"]), ("", []))

    def test_values_have_the_numbers_and_sources(self):
        values = build_machine_values(["2xT4"])
        [machine] = values["machines"]
        self.assertEqual([each["model"] for each in machine["devices"]], ["CPU", "T4", "T4"])
        self.assertLen(machine["links"], 6)
        self.assertIn("g4dn.12xlarge", machine["source"])
        self.assertEqual([each["name"] for each in values["device_classes"]], ["CPU", "T4"])

    def test_memory_for_tensors_is_that_of_problems(self):
        # A plan uses all memory of an emulated GPU but for the order of operations.
        for spec, memory in (("1xP100", "14.50 GiB"), ("emulated:1xP100", "14.50 GiB")):
            [row] = [row for row in parse_rows(format_machine(spec)) if "P100" in row]
            self.assertEqual(row[4], memory)

    def test_values_of_several_machines_have_each_class_once(self):
        values = build_machine_values(["2xT4", "4xT4"])
        self.assertEqual([each["name"] for each in values["machines"]], ["2xT4", "4xT4"])
        self.assertEqual([each["name"] for each in values["device_classes"]], ["CPU", "T4"])

    def test_an_unknown_machine_is_an_error_with_near_names(self):
        for unknown, near in (
            ("4xK81", "'4xK80'"),
            ("A100", "'1xA100'"),
            ("8xb200", "'8xB200'"),
            ("2xV100-32", "'2xV100-32GB'"),
        ):
            with self.assertRaisesRegex(MachineError, rf"'{unknown}' \(did you mean .*{near}"):
                format_machine(unknown)
        with self.assertRaisesRegex(MachineError, "^unknown machine 'toaster': expected"):
            format_machine("toaster")
        with self.assertRaisesRegex(MachineError, "from 1 to 8 GPUs, not 9"):
            format_machine("9xB200")


if __name__ == "__main__":
    absltest.main()
