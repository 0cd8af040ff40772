"""Tests of the benchmark of first answers, on runs made up by hand and on a tiny problem."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib

import tensorflow as tf

from benchmarks.harness.csv_runs import read_runs, write_runs
from benchmarks.harness.provenance import commit
from benchmarks.speed import first_answer
from benchmarks.speed.first_answer import Case, CommandRun

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

    def call(self, *arguments: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            first_answer.main([*arguments, f"--out_dir={self.folder}"])
        return (self.folder / "table.md").read_text()

    def test_table_has_the_least_of_all_rounds_and_its_ratio(self):
        this = [_RUN, dataclasses.replace(_RUN, number=1, wall_secs=1.0, processor_secs=4.0)]
        other = [dataclasses.replace(_RUN, wall_secs=8.0, processor_secs=6.0, peak_bytes=10**8)]
        row = first_answer.first_answer_table(this, other).splitlines()[-1]
        self.assertEqual(
            row,
            "| search | 2,018 | cold | 3.00 | 6.00 | 0.5 | 1.00 | 8.00 | 0.125 | 50 | 100 | 0.5 |",
        )

    def test_table_has_a_row_per_command_size_and_state(self):
        runs = [
            dataclasses.replace(
                _RUN, phase=phase, operations=size, num_operations=size, state=state
            )
            for phase in ("simulate", "search")
            for size in (60, 500)
            for state in ("cold", "warm")
        ]
        lines = first_answer.first_answer_table(runs, []).splitlines()
        self.assertLen(lines, 2 + 8)
        self.assertEqual(
            lines[0], "| command | operations | caches | processor s | wall s | peak MB |"
        )
        self.assertEqual(lines[3], "| simulate | 60 | warm | 3.00 | 2.00 | 50 |")

    def test_what_was_confirmed_is_beside_its_like(self):
        other = [dataclasses.replace(_RUN, confirmed=True, wall_secs=5.0)]
        confirmed = dataclasses.replace(_RUN, confirmed=True, wall_secs=20.0)
        *_, row, second = first_answer.first_answer_table([confirmed, _RUN], other).splitlines()
        self.assertStartsWith(row, "| search | 2,018 | cold | 3.00 | – | – | 2.00 | – | – |")
        self.assertStartsWith(second, "| search, confirmed | 2,018 | cold | 3.00 | 3.00 | 1 |")
        self.assertIn("| 20.00 | 5.00 | 4 |", second)

    def test_a_command_runs_cold_and_warm(self):
        simulate, search = first_answer.problem_cases(self.folder, 60)
        self.assertEqual((simulate.phase, search.phase), ("simulate", "search"))
        runs = first_answer.measure(first_answer.THIS_TREE, simulate, "abc")
        self.assertEqual([run.state for run in runs], ["cold", "warm"])
        for run in runs:
            self.assertBetween(run.num_operations, 40, 80)
            self.assertGreater(run.wall_secs, 0.0)
            self.assertGreater(run.processor_secs, 0.0)
            self.assertGreater(run.peak_bytes, 10**7)

    def test_problems_have_about_as_many_operations_as_asked_for(self):
        for operations in (100, 2_000, 5_000):
            for case in first_answer.problem_cases(self.folder, operations):
                self.assertAllClose(case.num_operations, operations, rtol=0.1)

    def test_a_command_that_fails_says_why(self):
        case = Case("simulate", 1, 1, ("simulate", "--problem=missing.json", "--assignment=a.json"))
        with self.assertRaisesRegex(SystemExit, r"(?s)ended with 1:.*missing\.json"):
            first_answer.measure(first_answer.THIS_TREE, case, "abc")

    def test_what_is_there_is_not_measured_again(self):
        kept = [
            dataclasses.replace(
                _RUN, commit=commit(first_answer.THIS_TREE), phase="simulate", state=state
            )
            for state in ("cold", "warm")
        ]
        write_runs(CommandRun, self.folder / "runs.csv", kept)
        page = self.call("--phases=simulate", "--operations=2000")
        self.assertIn("| simulate | 2,018 | cold | 3.00 | 2.00 | 50 |", page)
        self.assertEqual(read_runs(CommandRun, self.folder / "runs.csv"), kept)

    def test_what_is_no_source_tree_is_refused(self):
        with self.assertRaises(SystemExit):
            self.call(f"--against={self.folder}")

    def test_assignment_has_a_device_for_every_group(self):
        first_answer.problem_cases(self.folder, 500)
        row = json.loads((self.folder / "assignment_500.json").read_text())["assignment"]
        self.assertEqual(sorted(set(row)), [0, 1, 2, 3, 4])


if __name__ == "__main__":
    tf.test.main()
