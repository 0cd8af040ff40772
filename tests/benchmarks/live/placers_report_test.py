"""Tests of the report of live searches, on trials made by hand."""

from __future__ import annotations

import csv
import pathlib

from absl.testing import absltest

from benchmarks.live.placers_report import Search, placer_table, search_table, write_trials
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.live.confirmation import Comparison, Confirmation
from tf_placer.search.trial_log import ORIGINAL, Trial

_OUT_OF_MEMORY = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "too large"))


def _trial(index, placer, secs, assignment=None, repeats=None):
    measurement = _OUT_OF_MEMORY if secs is None else Measurement((secs,))
    return Trial(index, placer, 0, assignment, measurement, repeats, 1.0, "2026-01-01")


def _search(placer, seed, secs):
    trials = [_trial(0, ORIGINAL, 0.1)]
    trials += [_trial(i, placer, s, (i % 3, 0)) for i, s in enumerate(secs, 1)]
    return Search(placer, seed, 2, 4, trials)


def _confirmation(secs, speedups):
    """Two rounds with the same times, and comparisons as given."""
    measured = {label: Measurement((value,)) for label, value in secs.items()}
    comparisons = {
        label: Comparison(speedup, (speedup - 0.1, speedup + 0.1), False, "")
        for label, speedup in speedups.items()
    }
    return Confirmation(ORIGINAL, (), (measured, measured), comparisons, ORIGINAL)


def _cells(line):
    """A line of a table without the widths of its columns."""
    return " ".join(line.split())


class SearchTest(absltest.TestCase):
    def test_found_is_the_fastest_trial_of_the_placer_and_never_the_original(self):
        run = _search("post", 0, [0.4, None, 0.2, 0.3])
        self.assertEqual(run.found.index, 3)
        self.assertLen(run.proposed, 4)

    def test_quarters_are_means_of_the_trials_that_ran(self):
        run = _search("post", 0, [None, 0.1, 0.3, 0.9, 0.9, 0.9, 0.9, 0.5, None, 0.7])
        first, last = run.quarter_secs()
        self.assertAlmostEqual(first, 0.2)
        self.assertAlmostEqual(last, 0.6)

    def test_where_nothing_ran_nothing_is_found(self):
        run = _search("post", 0, [None, None])
        self.assertIsNone(run.found)
        self.assertEqual(run.quarter_secs(), (None, None))


class TablesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.searches = [
            _search("random", 0, [0.3, 0.2, 0.4, None]),
            _search("post", 0, [None, None]),
            _search("random", 1, [0.1, 0.1]),
        ]
        self.confirmation = _confirmation(
            {ORIGINAL: 0.1, "random 0": 0.25, "random 1": 0.125},
            {"random 0": 0.4, "random 1": 0.8},
        )

    def test_a_line_for_each_search(self):
        lines = search_table(self.searches, self.confirmation).splitlines()
        self.assertEqual(
            _cells(lines[2]),
            "random 0 4 1 3 300.0 ms 400.0 ms 200.0 ms 2 250.0 ms 0.400x (0.300 to 0.500)",
        )
        self.assertEqual(_cells(lines[3]), "post 0 2 2 2")

    def test_a_line_for_each_placer_with_medians_over_its_seeds(self):
        lines = placer_table(self.searches, self.confirmation).splitlines()
        self.assertLen(lines, 4)
        self.assertEqual(
            _cells(lines[2]), "random 2 4 2 200.0 ms 250.0 ms 150.0 ms 187.5 ms 0.400x, 0.800x"
        )
        self.assertEqual(_cells(lines[3]), "post 2 4 1 -")

    def test_a_placement_that_failed_when_measured_again_has_no_speedup(self):
        confirmation = Confirmation(
            ORIGINAL,
            (),
            ({ORIGINAL: Measurement((0.1,)), "post 0": _OUT_OF_MEMORY},),
            {"post 0": Comparison(None, None, False, "failed in round 1")},
            ORIGINAL,
        )
        line = search_table([_search("post", 0, [0.3])], confirmation).splitlines()[2]
        self.assertTrue(line.endswith(" -"), line)


class WriteTrialsTest(absltest.TestCase):
    def test_every_trial_is_a_line_with_its_time_or_its_failure(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "trials.csv"
        write_trials(path, [_search("post", 3, [0.25, None])])
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["trial"] for row in rows], ["0", "1", "2"])
        self.assertEqual([row["step_secs"] for row in rows], ["0.1", "0.25", ""])
        self.assertEqual([row["failure"] for row in rows], ["", "", "out_of_memory"])
        self.assertEqual({row["placer"] for row in rows}, {"post"})


if __name__ == "__main__":
    absltest.main()
