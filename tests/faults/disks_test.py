"""A share of the campaign of disks without room."""

from __future__ import annotations

import pathlib
import subprocess

from absl.testing import absltest

from tests.faults import files
from tests.faults.campaign import GOOD, make_in_child
from tests.faults.disks import WITHIN


def can_mount() -> bool:
    """Returns whether this user may mount file systems of its own."""
    command = [*WITHIN, "mount", "-t", "tmpfs", "none", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


class DisksTest(absltest.TestCase):
    @absltest.skipIf(not can_mount(), "users cannot have file systems of their own here")
    def test_every_answer_is_good(self):
        cases = [make_in_child("disks", number, "hill_climbing", WITHIN) for number in range(2, 6)]
        self.assertEqual([case for [case] in cases if case.answer not in GOOD], [])
        self.assertIn("sentence", [case.answer for [case] in cases])

    def test_half_files_are_told_from_whole_ones(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        for name, content in (("a.json", "{}"), ("b.json", '{"a": '), ("e.jsonl", '{"torn')):
            (directory / name).write_text(content)
        (directory / ".d.json.0123.tmp").write_text("{}")
        self.assertEqual(files.half_files(directory), ["b.json"])
        self.assertEqual(files.find_leftovers(directory), [".d.json.0123.tmp"])


if __name__ == "__main__":
    absltest.main()
