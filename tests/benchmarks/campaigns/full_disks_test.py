"""A share of the campaign of disks without room, and tests of the campaign itself."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
from unittest import mock

from absl.testing import absltest

from benchmarks.campaigns import full_disks
from benchmarks.campaigns.full_disks import GOOD, can_mount, run_case


@absltest.skipIf(not can_mount(), "users cannot have file systems of their own here")
class FullDisksTest(absltest.TestCase):
    def test_every_answer_is_good(self):
        cases = [run_case(number, ["hill_climbing"]) for number in range(2, 6)]
        self.assertEqual([case for case in cases if case["answer"] not in GOOD], [])
        self.assertIn("sentence", [case["answer"] for case in cases])


class ReportTest(absltest.TestCase):
    def test_half_files_are_told_from_whole_ones(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        for name, content, is_half in (
            ("a.json", "{}", False),
            ("b.json", '{"a": ', True),
            ("c.json", "", True),
            (".d.json.0123.tmp", "{}", True),
            ("e.jsonl", '{"torn', False),
        ):
            path = directory / name
            path.write_text(content)
            self.assertEqual(full_disks._is_half(path), is_half, name)

    def test_a_campaign_goes_on_where_it_stopped(self):
        directory = self.create_tempdir().full_path
        case = {"case": 0, "placer": "p", "fault": "full", "answer": "signal", "words": "11"}
        with open(os.path.join(directory, "answers.jsonl"), "w") as file:
            file.write(json.dumps(case) + "\n" + '{"case": 1, "to')
        made = {**case, "case": 1, "answer": "works"}
        with (
            mock.patch.object(full_disks, "can_mount", return_value=True),
            mock.patch.object(full_disks, "run_case", return_value=made) as runs,
            contextlib.redirect_stdout(io.StringIO()) as printed,
        ):
            full_disks.main(["--cases=2", f"--out_dir={directory}"])
        self.assertEqual([call.args[0] for call in runs.call_args_list], [1])
        self.assertIn("| p, full | 1 | 1 |", printed.getvalue())
        self.assertIn("case 0, p, full: signal: 11", printed.getvalue())


if __name__ == "__main__":
    absltest.main()
