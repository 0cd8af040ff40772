"""Tests of the time plan of a live search."""

from __future__ import annotations

import dataclasses
import time

from absl.testing import absltest

from tests.tf_placer.scripted import trial
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS, MOST_ROUNDS
from tf_placer.live.time_plan import TimePlan
from tf_placer.search.trial_log import ORIGINAL

_BASELINES = ("single_device", "expert")


def plan(max_secs, trials=()):
    return TimePlan(max_secs, time.monotonic(), trials, _BASELINES)


def set_restart_secs(trials, restart_secs):
    """Copies trials, and sets the time in which processes started for the first."""
    secs = restart_secs + trials[0].measurement.total_secs
    return [dataclasses.replace(trials[0], elapsed_secs=secs), *trials[1:]]


class TimePlanTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        # Each trial runs two steps: they take 2 s, 2 s, 1 s and 1.6 s.
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
        trials = set_restart_secs(self.trials, restart_secs)
        return plan(max_secs).confirmation(trials, self.finalists, impatient=impatient)

    def test_counts_time_from_the_call(self):
        late = TimePlan(100.0, time.monotonic() - 30.0, [], _BASELINES)
        self.assertAlmostEqual(late.compute_secs_left(), 70.0, delta=1.0)

    def test_counts_the_time_of_earlier_calls(self):
        earlier = [dataclasses.replace(self.trials[0], elapsed_secs=40.0)]
        self.assertAlmostEqual(plan(100.0, earlier).compute_secs_left(), 60.0, delta=1.0)

    def test_baselines_share_a_quarter_of_the_search_time(self):
        late = TimePlan(300.0, time.monotonic() - 60.0, [], _BASELINES)
        for begin_secs, left_secs, expected in (
            (10.0, 100.0, True),  # 50 s of 160 s
            (30.0, 100.0, False),  # 30 s of 160 s
            (30.0, 50.0, True),  # 30 s of 110 s
            (30.0, -20.0, True),
        ):
            self.assertEqual(late.had_baseline_share(begin_secs, left_secs), expected)

    def test_profiling_time_includes_links_unless_they_are_known(self):
        trials = set_restart_secs(self.trials, 4.0)
        self.assertEqual(plan(100.0).profile_secs(trials, links_known=True), 3.0 + 10 * 1)
        self.assertEqual(plan(100.0).profile_secs(trials, links_known=False), 3.0 + 10 * 1 + 12.0)

    def test_estimates_the_time_that_is_enough_for_a_verdict(self):
        trials = set_restart_secs(self.trials, 4.0)
        # 6 s to the first trial, 13 s of profiling, 4 rounds of a placement as fast as the
        # original with 16 s each, 6 s for the work after them; a quarter of the whole for trials.
        usual = {"profile_secs": 13.0, "was_too_short": False}
        enough_secs = plan(100.0).estimate_enough_secs(trials, **usual)
        self.assertEqual(enough_secs, 120)
        self.assertBetween((6 + 13 + 4 * 16 + 6) / 0.75, enough_secs - 10, enough_secs)
        # Faster placements change nothing.
        self.assertEqual(plan(100.0).estimate_enough_secs(trials[:1], **usual), enough_secs)
        # A time that was not enough cannot be enough; a longer one stays the same advice.
        for max_secs, expected in ((200.0, 300), (100.0, enough_secs)):
            secs = plan(max_secs).estimate_enough_secs(
                trials, profile_secs=13.0, was_too_short=True
            )
            self.assertEqual(secs, expected)
        late = TimePlan(100.0, time.monotonic() - 30.0, [], _BASELINES)
        self.assertEqual(late.estimate_enough_secs(trials, **usual), 160)

    def test_what_was_measured_corrects_the_time_that_is_enough(self):
        trials = set_restart_secs(self.trials[:1], 4.0)
        usual = {"profile_secs": 13.0, "was_too_short": True}
        # Four rounds of 40 s, and a quarter more, instead of four of 16 s.
        secs = plan(100.0).estimate_enough_secs(trials, round_secs=40.0, **usual)
        self.assertBetween((6 + 13 + 4 * 50 + 6) / 0.75, secs - 10, secs)
        # Profiling that was given up after 40 s may take twice as long, which is half of the time
        # that is left then.
        secs = plan(100.0).estimate_enough_secs(trials, given_up_secs=40.0, **usual)
        self.assertBetween(6 + 4 * 16 + 6 + 2 * 80, secs - 10, secs)
        limit_secs = plan(secs).limit_profile_secs(trials, links_known=True)
        self.assertGreaterEqual(limit_secs, 80.0)

    def test_a_single_slow_trial_does_not_change_the_estimates(self):
        trials = set_restart_secs(self.trials[:2], 4.0)
        slow = dataclasses.replace(trials[1].measurement, drift=2.0)
        slow = dataclasses.replace(trials[1], measurement=slow)
        usual_secs = plan(1.0).profile_secs(trials, links_known=True)
        self.assertEqual(plan(1.0).profile_secs([trials[0], slow], links_known=True), usual_secs)

    def test_profiling_is_limited_by_its_estimate_and_the_time_of_the_confirmation(self):
        trials = set_restart_secs(self.trials, 4.0)
        # Three times the estimate, of 130 s without 57.6 s for the confirmation.
        limit_secs = plan(130.0).limit_profile_secs(trials, links_known=True)
        self.assertEqual(limit_secs, 3 * (3.0 + 10 * 1))
        # Half of the time left is more.
        left_secs = plan(1000.0).compute_measuring_secs_left(trials)
        limit_secs = plan(1000.0).limit_profile_secs(trials, links_known=True)
        self.assertAlmostEqual(limit_secs, left_secs / 2, delta=1.0)
        # The confirmation needs 4 rounds of 13 s, and 5.6 s for the work after them.
        limit_secs = plan(90.0).limit_profile_secs(trials, links_known=True)
        self.assertAlmostEqual(limit_secs, 90 - 4 * 13 - 5.6, delta=1.0)

    def test_reserves_more_time_if_the_machine_has_become_slow(self):
        def set_drift(trial, drift):
            measurement = dataclasses.replace(trial.measurement, drift=drift)
            return dataclasses.replace(trial, measurement=measurement)

        trials = set_restart_secs(self.trials, 4.0)
        usual_secs = plan(1.0).estimate_needed_secs(trials, self.finalists)
        # A single slow trial does not count.
        one = [*trials[:-1], set_drift(trials[-1], 2.0)]
        self.assertEqual(plan(1.0).estimate_needed_secs(one, self.finalists), usual_secs)
        slow = [trials[0], *(set_drift(each, 2.0) for each in trials[1:])]
        self.assertEqual(plan(1.0).estimate_needed_secs(slow, self.finalists), 2 * usual_secs)
        self.assertEqual(plan(1.0).profile_secs(slow, links_known=True), 2 * (3.0 + 10 * 1))
        # One selection round, seven rounds of two labels, and the work after them. Of the latter,
        # 10 s are the search of the explanation, which does not depend on the machine.
        left = plan(1000.0).compute_search_secs_left(slow, self.finalists)
        self.assertAlmostEqual(left, 1000 - 2 * (23.8 + 7 * 13 + 2) - 10, delta=1.0)
        # A fast phase does not reduce the reserve.
        fast = [trials[0], *(set_drift(each, 0.5) for each in trials[1:])]
        self.assertEqual(plan(1.0).estimate_needed_secs(fast, self.finalists), usual_secs)

    # A round starts processes (4 s here) and runs six steps of each label: 6 s of the original,
    # 3 s of the fastest, 4.8 s of the expert, 6 s of the single device.

    def test_reserves_time_for_the_confirmation(self):
        trials = set_restart_secs(self.trials, 4.0)
        # One selection round, seven rounds of two labels; 2 s and 10 s for the work after them.
        left = plan(500.0).compute_search_secs_left(trials, self.finalists)
        self.assertAlmostEqual(left, 500 - 23.8 - 7 * 13 - 12, delta=1.0)

    def test_reserves_time_for_opening_sessions(self):
        def slower(trial, setup_secs):
            measurement = dataclasses.replace(trial.measurement, setup_secs=setup_secs)
            return dataclasses.replace(trial, measurement=measurement)

        trials = set_restart_secs([slower(self.trials[0], 4.0), slower(self.trials[2], 1.0)], 4.0)
        finalists = {ORIGINAL: trials[0], "auto": trials[1]}
        # The original opens in half of its time in the search, the other in 1.5 times its own,
        # because of Grappler. Two more sessions compare values.
        left = plan(500.0).compute_search_secs_left(trials, finalists)
        self.assertAlmostEqual(left, 500 - 7 * (4 + 2 + 1.5 + 9) - 12 - 4, delta=1.0)

    def test_the_search_gets_half_of_a_short_time(self):
        trials = set_restart_secs(self.trials, 4.0)
        left = plan(200.0).compute_search_secs_left(trials, self.finalists)
        self.assertAlmostEqual(left, 100.0, delta=1.0)

    def test_reserves_the_minimum_of_a_confirmation_if_half_of_the_time_is_less(self):
        trials = set_restart_secs(self.trials, 4.0)
        left = plan(100.0).compute_search_secs_left(trials, self.finalists)
        self.assertAlmostEqual(left, 100 - 4 * 13 - 6, delta=1.0)

    def test_the_search_gets_all_time_if_no_confirmation_is_possible(self):
        trials = set_restart_secs(self.trials, 4.0)
        # 4 rounds, and 4 s for the work after them; a slight excess of the limit is allowed.
        self.assertTrue(plan(50.0).can_confirm(trials, self.finalists))
        self.assertFalse(plan(47.0).can_confirm(trials, self.finalists))
        left = plan(47.0).compute_search_secs_left(trials, self.finalists)
        self.assertAlmostEqual(left, 47.0, delta=1.0)

    def test_reserves_nothing_if_that_leaves_no_time_for_a_first_placement(self):
        trials = set_restart_secs(self.trials[:1], 4.0)
        finalists = {ORIGINAL: trials[0]}
        # Four rounds of the original take 40 s, the work after them 4 s, and a trial 2 s.
        left = plan(45.0).compute_search_secs_left(trials, finalists)
        self.assertAlmostEqual(left, 45.0, delta=0.5)
        left = plan(48.0).compute_search_secs_left(trials, finalists)
        self.assertAlmostEqual(left, 4.0, delta=0.5)

    def test_one_round_in_which_the_original_fails_again_is_enough(self):
        trials = [dataclasses.replace(trial(0, None, None), elapsed_secs=15.0), self.trials[2]]
        finalists = {ORIGINAL: trials[0], "auto": trials[1]}
        # The original takes its 15 s again; the other starts in 10 s, and runs six steps of 0.5 s.
        needed_secs = plan(60.0).estimate_needed_secs(trials, finalists)
        self.assertAlmostEqual(needed_secs, 15 + 10 + 3, delta=0.1)

    def test_reserves_no_time_without_a_promising_finalist(self):
        trials = set_restart_secs(self.trials, 4.0)
        slow = trial(4, [1], 3.0, "expert")
        # The rounds alone take all of the time; the work after them would exceed it.
        for finalists, is_promising in (
            ({ORIGINAL: trials[0]}, False),
            ({ORIGINAL: trials[0], "expert": slow}, False),
            ({ORIGINAL: trials[0], "expert": trials[3]}, True),
        ):
            max_secs = plan(1.0).estimate_needed_secs(trials, finalists)
            self.assertTrue(plan(max_secs).can_confirm(trials, finalists))
            left = plan(max_secs).compute_search_secs_left(trials, finalists)
            if is_promising:
                self.assertLess(left, 0.0)
            else:
                self.assertAlmostEqual(left, max_secs, delta=1.0)

    def test_reserves_nothing_while_only_baselines_have_run_and_none_may_be_faster(self):
        original, slow = self.trials[0], trial(1, [1], 1.2, "expert")
        # Four rounds of 17.2 s and 6 s for the work after them fit into 100 s.
        for trials, is_reserved in (
            ([], False),
            ([original], False),
            ([original, slow], False),
            ([original, slow, self.trials[3]], True),  # It may be faster.
            ([original, slow, trial(2, [1], 1.2, "auto")], True),
        ):
            trials = trials and set_restart_secs(trials, 4.0)
            left = plan(100.0).compute_measuring_secs_left(trials)
            self.assertEqual(left < 90.0, is_reserved, trials)

    def test_confirms_all_finalists_if_there_is_time(self):
        found = self.confirmation(300.0)
        self.assertEqual(found.labels, tuple(self.finalists))
        self.assertAlmostEqual(found.max_secs, 300.0 - 12.0, delta=1.0)

    def test_drops_the_slower_baselines_first_if_there_is_little_time(self):
        # Selecting among all takes 24 s, without the slower baseline 18 s.
        after_secs = 2 + 2 * 0.02 * 115
        found = self.confirmation(91 + after_secs + 21)
        self.assertEqual(found.labels, (ORIGINAL, "expert", "auto"))
        found = self.confirmation(91 + after_secs + 15)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))

    def test_confirms_the_fastest_alone_if_only_the_fewest_rounds_fit(self):
        # Reserve 5 s for the work after the confirmation of so short a search.
        found = self.confirmation(4 * 13 + 5)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))
        self.assertAlmostEqual(found.max_secs, 4 * 13, delta=1.0)
        # A confirmation that slightly exceeds the time left by its estimate begins nevertheless,
        # with the time left as its limit.
        self.assertAlmostEqual(self.confirmation(4 * 13).max_secs, 4 * 13 - 4.1, delta=1.0)
        self.assertIsNone(self.confirmation(45.0))

    def test_estimates_the_minimum_time_of_a_confirmation(self):
        trials = set_restart_secs(self.trials, 4.0)
        self.assertAlmostEqual(plan(1.0).estimate_needed_secs(trials, self.finalists), 4 * 13)

    def test_an_interrupt_plans_the_minimum_of_rounds_with_the_fastest(self):
        found = self.confirmation(600.0, impatient=True)
        self.assertEqual(found.labels, (ORIGINAL, "auto"))
        self.assertEqual(found.most_rounds, LEAST_ROUNDS)
        self.assertEqual(self.confirmation(600.0).most_rounds, MOST_ROUNDS)
        # An interrupt does not extend the time, from which the work afterwards is reserved.
        self.assertBetween(found.max_secs, 570.0, 600.0)
        self.assertIsNone(self.confirmation(45.0, impatient=True))

    def test_plans_nothing_without_a_finalist(self):
        trials = set_restart_secs(self.trials, 4.0)
        finalists = {ORIGINAL: trials[0]}
        self.assertIsNone(plan(600.0).confirmation(trials, finalists, impatient=False))


if __name__ == "__main__":
    absltest.main()
