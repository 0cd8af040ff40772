"""Tests of how the time of a live search is shared out."""

from __future__ import annotations

import dataclasses
import math
import time

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.time_plan import TimePlan, trial_secs
from tf_placer.trial_log import ORIGINAL

_BASELINES = ("single_device", "expert")


def plan(max_secs, trials=()):
    return TimePlan(max_secs, time.monotonic(), trials, _BASELINES)


def started(trials, restart_secs):
    """The trials, the first of which took that long to start its processes."""
    secs = restart_secs + trial_secs(trials[0].measurement)
    return [dataclasses.replace(trials[0], elapsed_secs=secs), *trials[1:]]


class TimePlanTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Each takes two steps: 2 s, 2 s, 1 s and 1.6 s.
        self.trials = [
            trial(0, None, 1.0),
            trial(1, [0], 1.0, "single_device"),
            trial(2, [1], 0.5, "auto"),
            trial(3, [1], 0.8, "expert"),
        ]
        self.finalists = {
            ORIGINAL: self.trials[0],
            "single_device": self.trials[1],
            "expert": self.trials[3],
            "auto": self.trials[2],
        }

    def confirmation(self, max_secs, impatient=False, restart_secs=4.0):
        trials = started(self.trials, restart_secs)
        return plan(max_secs).confirmation(trials, self.finalists, impatient=impatient)

    def test_time_begins_with_the_call(self):
        late = TimePlan(100.0, time.monotonic() - 30.0, [], _BASELINES)
        self.assertAlmostEqual(late.left_secs(), 70.0, delta=1.0)

    def test_what_earlier_calls_took_counts(self):
        earlier = [dataclasses.replace(self.trials[0], elapsed_secs=40.0)]
        self.assertAlmostEqual(plan(100.0, earlier).left_secs(), 60.0, delta=1.0)

    def test_what_does_not_count_postpones_the_end(self):
        late = plan(100.0)
        late.postpone(30.0)
        self.assertAlmostEqual(late.left_secs(), 130.0, delta=1.0)

    def test_profiling_needs_time_for_two_starts_and_a_measurement(self):
        trials = started(self.trials, 4.0)
        self.assertTrue(plan(100.0).can_profile(trials, 10.1))
        self.assertFalse(plan(100.0).can_profile(trials, 9.9))

    def test_the_confirmation_has_its_share_before_it_begins(self):
        trials = started(self.trials, 4.0)
        # Five rounds of 4 s and three finalists, a fifth more; 12 s for what follows.
        left = plan(300.0).left_to_search_secs(trials, self.finalists)
        self.assertAlmostEqual(left, 300 - 5 * 1.2 * 8.6 - 2 - 10, delta=1.0)

    def test_most_of_a_short_time_is_for_the_search(self):
        trials = started(self.trials, 4.0)
        left = plan(50.0).left_to_search_secs(trials, self.finalists)
        self.assertAlmostEqual(left, 0.6 * 50.0, delta=1.0)

    def test_with_time_all_finalists_are_measured_nine_times(self):
        found = self.confirmation(600.0)
        self.assertEqual(found.labels, tuple(self.finalists))
        self.assertEqual(found.rounds, 9)

    def test_with_little_time_the_best_baseline_and_the_fastest_stay(self):
        # Five rounds of all take 64 s; without the slower baseline 52 s.
        found = self.confirmation(60.0)
        self.assertEqual(found.labels, (ORIGINAL, "expert", "auto"))

    def test_rounds_begin_as_long_as_one_more_fits(self):
        # What follows takes half a start and a fiftieth of the time twice; a round of three 10.3 s.
        found = self.confirmation(60.0)
        self.assertEqual(found.rounds, 9)
        self.assertAlmostEqual(found.deadline_secs, 60.0 - 2.0 - 2.4 - 10.3, delta=1.0)

    def test_with_hardly_any_time_the_fastest_is_measured_twice_or_not_at_all(self):
        found = self.confirmation(22.0)
        self.assertEqual((found.labels, found.rounds), ((ORIGINAL, "auto"), 2))
        self.assertIsNone(self.confirmation(12.0))

    def test_who_is_impatient_gets_three_rounds_of_the_fastest(self):
        found = self.confirmation(600.0, impatient=True)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))
        self.assertEqual(found.rounds, 3)
        self.assertEqual(found.deadline_secs, math.inf)


if __name__ == "__main__":
    absltest.main()
