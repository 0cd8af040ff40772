"""Tests of finding machines by their names."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError


class FindMachineTest(parameterized.TestCase):
    @parameterized.parameters(
        ("gpu", "unknown machine 'gpu': expected 'attached', 'local:N'"),
        (
            "4xK81",
            r"unknown machine '4xK81' \(did you mean '4xK80'\?\): .* such as 4xK80 \(.* lists",
        ),
        ("", "unknown machine ''"),
        ("lokal:2", r"'lokal:2' \(did you mean 'local:2'\?\)"),
        ("Local:16", r"'Local:16' \(did you mean 'local:16'\?\)"),
        ("lokal:2,memory_mb=9", r"\(did you mean 'local:2,memory_mb=9'\?\)"),
        ("2xV100-32", r"\(did you mean '2xV100-32GB'"),
        ("atached", r"'atached' \(did you mean 'attached'\?\)"),
    )
    def test_an_unknown_machine_is_an_error(self, spec, message):
        with self.assertRaisesRegex(MachineError, message):
            find_machine(spec)

    def test_messages_are_short(self):
        for spec in ("x" * 10**6, f"local:{'9' * 10**6}", f"local:2,{'x' * 10**6}=1"):
            with self.assertRaises(MachineError) as caught:
                find_machine(spec)
            self.assertLess(len(str(caught.exception)), 400)


class DescribedMachineTest(absltest.TestCase):
    def test_finds_a_machine_of_the_catalog(self):
        machine = find_machine("2xK80")
        self.assertEqual((machine.spec, machine.kind), ("2xK80", "described"))
        self.assertEqual([device.type for device in machine.devices], ["CPU", "GPU", "GPU"])

    def test_finds_a_mix(self):
        machine = find_machine("1xV100+1xK80")
        self.assertEqual([device.model for device in machine.devices[1:]], ["V100", "K80"])
        with self.assertRaisesRegex(MachineError, "'1xV100[+]1xK8': unknown part '1xK8'"):
            find_machine("1xV100+1xK8")
        with self.assertRaisesRegex(MachineError, "unknown machine 'cpu[+]gpu'"):
            find_machine("cpu+gpu")

    def test_reads_a_machine_file(self):
        path = self.create_tempfile("box.json", "{}").full_path
        with self.assertRaisesRegex(
            MachineError, f'machine file {path}: the machine has no entry "format"'
        ):
            find_machine(path)


if __name__ == "__main__":
    absltest.main()
