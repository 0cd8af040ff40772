"""Tests of what is said of searches where a good placement is known."""

from __future__ import annotations

import math

from absl.testing import absltest

from benchmarks.search_quality.known_placements import (
    KnownRun,
    quality_table,
    run_one,
    size_table,
)


def made_up(family, size, max_secs, ratio, within_secs=math.inf):
    return KnownRun(
        family, size, "auto", max_secs, 0, size + 1, 1.0, 1.25, ratio, within_secs, max_secs, 9
    )


def rows(table):
    lines = table.splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


class KnownPlacementsTest(absltest.TestCase):
    def test_auto_is_timed_until_it_is_within_two_percent(self):
        key = (0, 0.5, 500, "tree")
        run = run_one(key)
        self.assertEqual(run.key, key)
        self.assertGreater(run.simulated, 1)
        self.assertEqual(run.ratio <= 1.02, math.isfinite(run.within_secs))

    def test_sizes_are_compared_over_all_families_and_for_each_time(self):
        runs = [
            made_up("tree", 1000, 5.0, 0.9, 0.25),
            made_up("grid", 1000, 5.0, 1.6),
            made_up("grid", 1000, 15.0, 0.8, 0.5),
            made_up("grid", 4000, 15.0, 1.0, 2.0),
        ]
        # The known step is 1.25 times the bound.
        self.assertEqual(
            rows(size_table(runs)),
            [
                ["1,000", "5 s", "1.200", "1.600", "1.500", "1 of 2", "-", "-", "5.0 s"],
                ["1,000", "15 s", "0.800", "0.800", "1.000", "1 of 1", *["0.5 s"] * 2, "15.0 s"],
                ["4,000", "15 s", "1.000", "1.000", "1.250", "1 of 1", *["2.0 s"] * 2, "15.0 s"],
            ],
        )

    def test_the_table_has_a_row_per_problem_and_a_column_per_time(self):
        runs = [
            made_up("tree", 1000, 5.0, 1.1),
            made_up("tree", 1000, 15.0, 0.9),
            made_up("grid", 1000, 5.0, 1.2),
        ]
        self.assertEqual(
            rows(quality_table(runs)),
            [
                ["grid", "1,001", "1.250", "1.200", ""],
                ["tree", "1,001", "1.250", "1.100", "0.900"],
                ["all", "", "", "1.149", "0.900"],
                ["worst", "", "", "1.200", "0.900"],
            ],
        )


if __name__ == "__main__":
    absltest.main()
