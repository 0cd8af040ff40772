"""Tests of how the time of a live search is shared out."""

from __future__ import annotations

import dataclasses
import math
import time

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.round_statistics import LEAST_ROUNDS
from tf_placer.time_plan import TimePlan
from tf_placer.trial_log import ORIGINAL

_BASELINES = ("single_device", "expert")


def plan(max_secs, trials=()):
    return TimePlan(max_secs, time.monotonic(), trials, _BASELINES)


def started(trials, restart_secs):
    """The trials, the first of which took that long to start its processes."""
    secs = restart_secs + trials[0].measurement.total_secs
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

    # A round starts processes (4 s here) and runs eleven steps of each: 11 s of the graph as it
    # came, 5.5 s of the fastest, 8.8 s of the expert, 11 s of the single device.

    def test_the_confirmation_has_its_share_before_it_begins(self):
        trials = started(self.trials, 4.0)
        # One round of all to choose, seven of two; and 2 s and 10 s for what follows.
        left = plan(500.0).left_to_search_secs(trials, self.finalists)
        self.assertAlmostEqual(left, 500 - 40.3 - 7 * 20.5 - 12, delta=1.0)

    def test_opening_sessions_counts(self):
        slow = dataclasses.replace(self.trials[0].measurement, setup_secs=2.0)
        trials = started([dataclasses.replace(self.trials[0], measurement=slow)], 4.0)
        finalists = {ORIGINAL: trials[0]}
        # Half as much again for Grappler, and three sessions for comparing values.
        left = plan(500.0).left_to_search_secs(trials, finalists)
        self.assertAlmostEqual(left, 500 - 7 * (4 + 3 + 11) - 12 - 6, delta=1.0)

    def test_half_of_a_short_time_is_for_the_search(self):
        trials = started(self.trials, 4.0)
        left = plan(50.0).left_to_search_secs(trials, self.finalists)
        self.assertAlmostEqual(left, 25.0, delta=1.0)

    def test_with_time_all_finalists_are_confirmed(self):
        found = self.confirmation(300.0)
        self.assertEqual(found.labels, tuple(self.finalists))
        self.assertAlmostEqual(found.max_secs, 300.0 - 12.0, delta=1.0)

    def test_with_little_time_the_best_baseline_and_the_fastest_stay(self):
        # To choose among all takes 40 s, without the slower baseline 29 s.
        found = self.confirmation(143.5 + 12 + 35)
        self.assertEqual(found.labels, (ORIGINAL, "expert", "auto"))
        found = self.confirmation(143.5 + 12 + 20)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))

    def test_the_fastest_alone_is_confirmed_as_long_as_the_fewest_rounds_fit(self):
        # What follows takes 5.5 s where the whole time is as short as this.
        found = self.confirmation(4 * 20.5 + 5.5)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))
        self.assertAlmostEqual(found.max_secs, 4 * 20.5, delta=1.0)
        # Some more time than there is may be taken, rather than to find nothing.
        self.assertAlmostEqual(self.confirmation(4 * 20.5).max_secs, 4 * 20.5, delta=1.0)
        self.assertIsNone(self.confirmation(70.0))

    def test_what_a_confirmation_needs_at_least_can_be_asked(self):
        trials = started(self.trials, 4.0)
        self.assertAlmostEqual(plan(1.0).needed_secs(trials, self.trials[2]), 4 * 20.5)

    def test_who_is_impatient_gets_the_fewest_rounds_of_the_fastest(self):
        found = self.confirmation(600.0, impatient=True)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))
        self.assertEqual(found.most_rounds, LEAST_ROUNDS)
        self.assertEqual(found.max_secs, math.inf)

    def test_nothing_can_be_confirmed_where_nothing_was_found(self):
        trials = started(self.trials, 4.0)
        finalists = {ORIGINAL: trials[0]}
        self.assertIsNone(plan(600.0).confirmation(trials, finalists, impatient=False))


if __name__ == "__main__":
    absltest.main()
