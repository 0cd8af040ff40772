"""Tests of runs in CSV files."""

from __future__ import annotations

import dataclasses
import pathlib

from absl.testing import absltest

from benchmarks.harness.csv_runs import kept_or_run


@dataclasses.dataclass(frozen=True)
class Run:
    number: int
    name: str
    ratio: float
    fits: bool

    @property
    def key(self):
        return self.number


def make_run(number):
    return Run(number, f"run, {number}", float("inf") if number == 1 else 0.1 + number, number == 2)


class CsvRunsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path, "folder", "runs.csv")
        self.made = []

    def run_numbers(self, numbers, make=make_run, **settings):
        def recorded(number):
            self.made.append(number)
            return make(number)

        return kept_or_run(Run, self.path, numbers, recorded, **settings)

    def test_goes_on_where_it_stopped_with_what_was_kept(self):
        def stop_at_2(number):
            if number == 2:
                raise KeyboardInterrupt
            return make_run(number)

        with self.assertRaises(KeyboardInterrupt):
            self.run_numbers(range(4), stop_at_2)
        self.assertEqual(self.run_numbers(range(4)), [make_run(number) for number in range(4)])
        self.assertEqual(self.made, [0, 1, 2, 2, 3])

    def test_returns_no_more_than_was_asked_for(self):
        self.run_numbers(range(4))
        self.assertEqual(self.run_numbers([3, 1]), [make_run(3), make_run(1)])
        self.assertEqual(self.run_numbers([3, 7], only_kept=True), [make_run(3)])
        self.assertLen(self.made, 4)


if __name__ == "__main__":
    absltest.main()
