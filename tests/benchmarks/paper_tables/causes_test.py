"""Tests of what the command takes apart, on a small problem."""

from __future__ import annotations

import contextlib
import io
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.harness.placement_runs import RunKey
from benchmarks.paper_tables import causes as table_causes
from benchmarks.problems.paper import ProblemKey, read_paper_problem
from tests.benchmarks.made_up_runs import run, write_small_problem
from tf_placer.files import write_json

_KEY = ProblemKey("rnnlm_2", "1xK80", small=True)


class TableCausesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        write_small_problem(_KEY, self.folder / "problems", "two chains")
        self.problem = read_paper_problem(_KEY, self.folder / "problems")

    def test_every_problem_of_the_tables_is_taken_apart_once(self):
        keys = table_causes.problem_keys()
        self.assertLen(set(keys), len(keys))
        self.assertContainsSubset(
            [("nmt_2", "2xK80"), ("resnet_101", "post-8xK80"), ("two_towers", "4xA100")],
            [(key.model, key.machine) for key in keys],
        )

    def test_the_fastest_run_of_the_same_problem_is_taken_apart(self):
        runs = self.folder / "9-core-secs"
        runs.mkdir()
        for placer, secs, digest in (("auto", 0.4, None), ("post", 0.5, None), ("eagle", 0.1, "x")):
            key = RunKey("rnnlm_2", "1xK80", placer, small=True)
            made = run(key, secs, assignment=[0, 0, 0, 0, 1, 1, 1, 1]).to_json()
            made["problem_digest"] = digest or self.problem.digest
            write_json(runs / key.file_name, made)
        flags = [f"--runs_dir={self.folder}", f"--out_dir={self.folder}"]
        with (
            mock.patch.object(table_causes, "PLACERS", ["single_gpu"]),
            mock.patch.object(table_causes, "problem_keys", return_value=[_KEY]),
            mock.patch.object(sys, "argv", ["command", *flags]),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            table_causes.main()
        page = (self.folder / "causes.md").read_text()
        self.assertIn("| found by auto | 0.400 | 1.00 | at the bound |", page)


if __name__ == "__main__":
    absltest.main()
