"""Tests of the benchmark of first answers, on runs made up by hand and on a tiny problem."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import pathlib

import tensorflow as tf

from benchmarks.harness.csv_runs import read_runs, write_runs
from benchmarks.harness.provenance import commit
from benchmarks.speed import first_answer
from benchmarks.speed.first_answer import CommandRun

_RUN = CommandRun(
    commit="abc",
    phase="search",
    operations=2_000,
    num_operations=2_018,
    number=0,
    state="cold",
    wall_secs=2.0,
    processor_secs=3.0,
    peak_bytes=50_000_000,
    confirmed=False,
)


class FirstAnswerTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_table_has_both_trees_and_their_ratio(self):
        other = dataclasses.replace(_RUN, wall_secs=8.0, processor_secs=6.0, peak_bytes=10**8)
        row = first_answer.first_answer_table([_RUN], [other]).splitlines()[-1]
        self.assertEqual(
            row,
            "| search | 2,018 | cold | 3.00 | 6.00 | 0.5 | 2.00 | 8.00 | 0.25 | 50 | 100 | 0.5 |",
        )

    def test_what_was_confirmed_is_beside_its_like(self):
        other = [dataclasses.replace(_RUN, confirmed=True, wall_secs=5.0)]
        confirmed = dataclasses.replace(_RUN, confirmed=True, wall_secs=20.0)
        *_, row, second = first_answer.first_answer_table([confirmed, _RUN], other).splitlines()
        self.assertStartsWith(row, "| search | 2,018 | cold | 3.00 | – | – | 2.00 | – | – |")
        self.assertStartsWith(second, "| search, confirmed | 2,018 | cold | 3.00 | 3.00 | 1 |")
        self.assertIn("| 20.00 | 5.00 | 4 |", second)

    def test_a_command_runs_cold_and_warm(self):
        case = first_answer.make_case(self.folder, "simulate", 60)
        runs = first_answer.measure(first_answer.THIS_TREE, case, "abc")
        self.assertEqual([run.state for run in runs], ["cold", "warm"])
        for run in runs:
            self.assertBetween(run.num_operations, 40, 80)
            self.assertGreater(run.wall_secs, 0.0)
            self.assertGreater(run.processor_secs, 0.0)
            self.assertGreater(run.peak_bytes, 10**7)

    def test_problems_have_about_as_many_operations_as_asked_for(self):
        for operations in (100, 2_000, 5_000):
            case = first_answer.make_case(self.folder, "search", operations)
            self.assertAllClose(case.num_operations, operations, rtol=0.1)

    def test_what_is_there_is_not_measured_again(self):
        kept = [
            dataclasses.replace(
                _RUN, commit=commit(first_answer.THIS_TREE), phase="simulate", state=state
            )
            for state in ("cold", "warm")
        ]
        write_runs(CommandRun, self.folder / "runs.csv", kept)
        with contextlib.redirect_stdout(io.StringIO()):
            first_answer.main(
                ["--phases=simulate", "--operations=2000", f"--out_dir={self.folder}"]
            )
        page = (self.folder / "table.md").read_text()
        self.assertIn("| simulate | 2,018 | cold | 3.00 | 2.00 | 50 |", page)
        self.assertEqual(read_runs(CommandRun, self.folder / "runs.csv"), kept)


if __name__ == "__main__":
    tf.test.main()
