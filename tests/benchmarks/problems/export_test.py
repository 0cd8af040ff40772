"""Tests of problems for other tools."""

from __future__ import annotations

import contextlib
import io
import pathlib
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.problems import export
from benchmarks.problems.paper import ProblemKey
from tests.benchmarks.made_up_runs import write_small_problem
from tf_placer.problem.problem_file import read_problem


class ExportTest(absltest.TestCase):
    def test_problems_are_exported(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        key = ProblemKey("nmt_2", "2xK80", "fine", small=True)
        write_small_problem(key, folder / "problems", "chain")
        flags = ["--models=nmt_2", "--machines=2xK80", "--small", f"--runs_dir={folder}"]
        with (
            mock.patch.object(sys, "argv", ["export", *flags, f"--out_dir={folder / 'out'}"]),
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaises(SystemExit) as ended,
        ):
            export.main()
        self.assertEqual(ended.exception.code, 0)
        self.assertEqual(read_problem(folder / "out" / "nmt_2-2xK80.json").num_operations, 8)


if __name__ == "__main__":
    absltest.main()
