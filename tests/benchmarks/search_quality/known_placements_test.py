import math
import pathlib

from absl.testing import absltest

from benchmarks.problems.known import known_problem
from benchmarks.search_quality.known_placements import (
    KnownRun,
    draw_growth,
    quality_table,
    run_one,
    size_table,
)


def made_up(family, size, placer, max_secs, ratio, within_secs=math.inf):
    return KnownRun(
        family, size, placer, max_secs, 0, size + 1, 1.0, 1.25, ratio, within_secs, max_secs, 9
    )


def cells(table):
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]


class KnownPlacementsTest(absltest.TestCase):
    def test_a_run_compares_with_the_known_placement(self):
        run = run_one("tree", 500, "single_device", 60.0, 0)
        # All devices are alike, and on one of them nothing is ever waited for.
        work_secs = known_problem("tree", 500, 0).problem.compute_secs[:, 0].sum()
        self.assertAlmostEqual(run.ratio * run.known_secs, work_secs)
        self.assertEqual(run.within_secs, math.inf)
        self.assertEqual(run.simulated, 4)
        self.assertEqual(run.key, ("tree", 500, "single_device", 60.0, 0))

    def test_auto_is_timed_until_it_is_within_two_percent(self):
        run = run_one("tree", 500, "auto", 0.5, 0)
        self.assertGreater(run.simulated, 1)
        self.assertEqual(run.ratio <= 1.02, math.isfinite(run.within_secs))

    def test_a_placer_that_does_not_exist_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no placer 'aut'"):
            run_one("tree", 500, "aut", 1.0, 0)

    def test_sizes_are_compared_over_all_families_and_for_each_time(self):
        runs = [
            made_up("tree", 1000, "auto", 5.0, 0.9, 0.25),
            made_up("grid", 1000, "auto", 5.0, 1.6),
            made_up("grid", 1000, "auto", 15.0, 0.8, 0.5),
            made_up("grid", 1000, "heft", 15.0, 2.0, 0.1),
            made_up("grid", 4000, "auto", 15.0, 1.0, 2.0),
        ]
        # The known step is 1.25 times the bound.
        self.assertEqual(
            cells(size_table(runs))[2:],
            [
                ["1,000", "5 s", "1.200", "1.600", "1.500", "1 of 2", "-", "-", "5.0 s"],
                ["1,000", "15 s", "0.800", "0.800", "1.000", "1 of 1", *["0.5 s"] * 2, "15.0 s"],
                ["4,000", "15 s", "1.000", "1.000", "1.250", "1 of 1", *["2.0 s"] * 2, "15.0 s"],
            ],
        )

    def test_growth_is_drawn_where_matplotlib_is(self):
        try:
            import matplotlib  # noqa: F401 (whether it is there)
        except ImportError:
            self.skipTest("needs matplotlib")
        path = pathlib.Path(self.create_tempdir().full_path, "growth.png")
        made = [("tree", 1000, 0.5), ("grid", 1000, math.inf), ("tree", 4000, 2.0)]
        draw_growth([made_up(f, size, "auto", 5.0, 1.0, secs) for f, size, secs in made], path)
        self.assertEqual(path.read_bytes()[:4], b"\x89PNG")

    def test_the_table_has_a_row_per_problem_and_a_column_per_placer_and_time(self):
        runs = [
            made_up("tree", 1000, "auto", 5.0, 1.1),
            made_up("tree", 1000, "auto", 15.0, 0.9),
            made_up("grid", 1000, "auto", 5.0, 1.2),
            made_up("grid", 1000, "auto", 15.0, 1.0),
            made_up("grid", 1000, "heft", 15.0, 2.0),
        ]
        self.assertEqual(
            cells(quality_table(runs)),
            [
                ["family", "operations", "known / bound", "auto 5 s", "auto 15 s", "heft 15 s"],
                ["---", "---:", "---:", "---:", "---:", "---:"],
                ["grid", "1,001", "1.250", "1.200", "1.000", "2.000"],
                ["tree", "1,001", "1.250", "1.100", "0.900", ""],
                ["all", "", "", "1.149", "0.949", "2.000"],
                ["worst", "", "", "1.200", "1.000", "2.000"],
            ],
        )


if __name__ == "__main__":
    absltest.main()
