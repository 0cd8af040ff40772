"""Tests of confirmations and surveys."""

from __future__ import annotations

import collections
import json
import math

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer import doubles
from tf_placer.confirmation.confirmation import Confirmation, confirm, survey
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS, MOST_ROUNDS, estimate
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.interrupts import TimeLimitReached


def make_candidates(**speeds):
    """Makes candidates by label from speeds, or from complete fake assignments."""
    return {
        label: {"label": label, **(speed if isinstance(speed, dict) else {"speed": str(speed)})}
        for label, speed in speeds.items()
    }


def run_confirmation(environment, candidates, reference="o", **settings):
    return confirm(environment, candidates, reference, clock=environment.clock, **settings)


class Undecided(doubles.DriftingEnvironment):
    """An environment in which the speed of "a" alternates, so that no verdict ends the rounds."""

    def open_session(self, label, assignment):
        speed = {"speed": str(1.0 + 0.15 * (self.round % 2))} if label == "a" else {}
        return super().open_session(label, assignment | speed)


class TurnsTest(absltest.TestCase):
    def list_blocks(self, environment: doubles.DriftingEnvironment, labels: int) -> list[list[str]]:
        """Lists the labels of each block of the first round, after the warm-up."""
        ran = environment.asked[1:]
        ran = ran[: ran.index("restart")][labels:]
        return [ran[i : i + labels] for i in range(0, len(ran), labels)]

    def test_each_round_opens_all_labels_in_fresh_processes(self):
        environment = doubles.DriftingEnvironment(0)
        result = run_confirmation(environment, make_candidates(o=1, a=2))
        self.assertEqual(environment.round, len(result.rounds))
        for opened in environment.opened:
            self.assertCountEqual(opened, ["o", "a"])

    def test_labels_take_turns_and_every_second_block_is_reversed(self):
        for count in (2, 3, 5):
            environment = doubles.DriftingEnvironment(0)
            others = {f"l{i}": 1 for i in range(count - 1)}
            run_confirmation(environment, make_candidates(o=1, **others))
            blocks = self.list_blocks(environment, count)
            self.assertLen(blocks, 4)
            for block in blocks:
                self.assertCountEqual(block, ["o", *others])
            for first, second in zip(blocks[::2], blocks[1::2], strict=False):
                self.assertEqual(second, first[::-1])

    def test_the_order_of_labels_is_random(self):
        firsts = collections.Counter()
        for seed in range(100):
            environment = doubles.DriftingEnvironment(0)
            run_confirmation(environment, make_candidates(o=1, a=1), seed=seed)
            firsts.update(opened[0] for opened in environment.opened)
        self.assertBetween(firsts["o"] / firsts.total(), 0.4, 0.6)

    def test_slow_labels_are_left_out_of_later_blocks_of_the_selection(self):
        environment = doubles.DriftingEnvironment(0)
        result = run_confirmation(environment, make_candidates(o=1, a=1.2, slow=0.5))
        [selection] = result.selection
        steps = {label: len(m.step_secs) for label, m in selection.items()}
        self.assertLess(steps["slow"], steps["a"])
        self.assertEqual(steps["o"], steps["a"])
        np.testing.assert_allclose(result.comparisons["slow"].speedup, 0.5)


class DisturbedTest(absltest.TestCase):
    def count_steps(self, slowness):
        """Counts the steps of each round; `slowness` has the factor of each round's step times."""

        class Disturbed(doubles.DriftingEnvironment):
            def restart(self):
                super().restart()
                self._drift = slowness[min(self.round, len(slowness)) - 1]

        result = run_confirmation(Disturbed(0), make_candidates(o=1, a=1.5))
        return [len(measurements["o"].step_secs) for measurements in result.rounds]

    def test_the_first_round_and_disturbed_rounds_have_more_steps(self):
        self.assertEqual(self.count_steps([1.0, 1.0, 1.3, 1.0]), [4, 3, 3, 3])
        self.assertEqual(self.count_steps([1.0, 1.5, 1.0, 2.0]), [4, 14, 3, 14])

    def test_a_round_ends_when_the_disturbance_has_passed(self):
        class Passing(doubles.DriftingEnvironment):
            def restart(self):
                super().restart()
                self._drift, self.steps = 1.0, 0

            def run_steps(self, label, count):
                self.steps += count
                # The first eight steps of each label are slow in the second round.
                slow = 2.0 if self.round == 2 and self.steps <= 2 + 2 * 8 else 1.0
                return tuple(slow * secs for secs in super().run_steps(label, count))

        result = run_confirmation(Passing(0), make_candidates(o=1, a=1.5))
        lengths = [len(measurements["o"].step_secs) for measurements in result.rounds]
        # The second round ends once a quarter of its steps are fast: 3 of 11.
        self.assertEqual(lengths, [4, 11, 3, 3])

    def test_uncertain_rounds_have_more_blocks(self):
        class Restless(doubles.DriftingEnvironment):
            def run_steps(self, label, count):
                noise = self._rng.normal(0, 0.3, count)
                steps = super().run_steps(label, count)
                return tuple(secs * math.exp(e) for secs, e in zip(steps, noise, strict=True))

        result = run_confirmation(Restless(0), make_candidates(o=1, a=1))
        self.assertEqual(max(len(m["o"].step_secs) for m in result.rounds[:1]), 6)


class ConfirmTest(parameterized.TestCase):
    def test_drift_between_rounds_does_not_affect_the_speedup(self):
        result = run_confirmation(doubles.DriftingEnvironment(1), make_candidates(o=1, fast=1.25))
        fast = result.comparisons["fast"]
        np.testing.assert_allclose([fast.speedup, *fast.interval], 1.25, rtol=1e-12)
        self.assertTrue(fast.faster)
        self.assertStartsWith(fast.reason, "faster: 1.250x o")
        self.assertEqual(result.best, "fast")
        self.assertNotIn("o", result.comparisons)
        self.assertLen(result.rounds, LEAST_ROUNDS)
        self.assertEmpty(result.selection)

    def test_one_round_selects_and_further_rounds_decide(self):
        candidates = make_candidates(o=1, good=1.2, better=1.4, bad=0.9)
        result = run_confirmation(doubles.DriftingEnvironment(1, noise=0.01), candidates)
        self.assertLen(result.selection, 1)
        self.assertCountEqual(result.selection[0], candidates)
        for measurements in result.rounds:
            self.assertCountEqual(measurements, ["o", "better"])
        self.assertEqual(result.best, "better")
        self.assertTrue(result.comparisons["better"].faster)
        # The other candidates get no verdict, however fast they seem.
        for label in ("good", "bad"):
            self.assertFalse(result.comparisons[label].faster)
            self.assertIsNone(result.comparisons[label].interval)
        np.testing.assert_allclose(result.comparisons["good"].speedup, 1.2, rtol=0.05)

    def test_the_verdict_excludes_the_round_of_the_selection(self):
        environment = doubles.DriftingEnvironment(3, noise=0.1)
        result = run_confirmation(environment, make_candidates(o=1, a=1.15, b=1.1))
        logs = [math.log(r["o"].median_secs / r[result.best].median_secs) for r in result.rounds]
        expected = estimate(logs)
        comparison = result.comparisons[result.best]
        np.testing.assert_allclose(comparison.speedup, expected.speedup)
        np.testing.assert_allclose(comparison.interval, expected.interval)

    def test_hints_count_in_the_selection(self):
        candidates = make_candidates(o=1, a=1.30, b=1.31)
        found = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        self.assertEqual(found.best, "b")
        hints = {"a": math.log(1.5), "b": math.log(1.2)}
        hinted = run_confirmation(doubles.DriftingEnvironment(0), candidates, hints=hints)
        self.assertEqual(hinted.best, "a")

    def test_no_rounds_follow_if_all_candidates_are_slower(self):
        environment = doubles.DriftingEnvironment(0, noise=0.005)
        result = run_confirmation(environment, make_candidates(o=1, a=0.8, b=0.7))
        self.assertEmpty(result.rounds)
        self.assertEqual(result.best, "o")
        self.assertFalse(any(c.faster for c in result.comparisons.values()))

    def test_equal_candidates_are_seldom_called_faster(self):
        # The rate is at most 2.5 % by construction, with one candidate or four: 10 of 400. That
        # more than 18 occur has a probability of 0.7 %, and the seeds are fixed.
        for count in (1, 4):
            candidates = make_candidates(o=1, **{f"l{i}": 1 for i in range(count)})
            alarms = sum(
                any(
                    comparison.faster
                    for comparison in run_confirmation(
                        doubles.DriftingEnvironment(seed, noise=0.03), candidates, seed=seed
                    ).comparisons.values()
                )
                for seed in range(400)
            )
            self.assertLessEqual(alarms, 18, count)

    def test_a_true_gain_of_15_percent_is_found_in_noise_of_3_percent(self):
        results = [
            run_confirmation(
                doubles.DriftingEnvironment(seed, noise=0.03), make_candidates(o=1, a=1.15)
            )
            for seed in range(100)
        ]
        self.assertGreaterEqual(sum(r.comparisons["a"].faster for r in results), 97)
        self.assertLess(np.mean([len(r.rounds) for r in results]), 6)

    def test_gives_up_soon_on_exactly_equal_times(self):
        result = run_confirmation(doubles.DriftingEnvironment(0), make_candidates(o=1, a=1))
        self.assertFalse(result.comparisons["a"].faster)
        self.assertIn("no faster beyond the noise", result.comparisons["a"].reason)
        self.assertLen(result.rounds, LEAST_ROUNDS)

    @parameterized.parameters("timeout", "runtime_error")
    def test_the_next_best_replaces_a_candidate_that_fails(self, kind):
        # Round 1 selects, round 2 fails, and round 3 repeats it without the failed label.
        candidates = make_candidates(o=1, fast={"speed": "9", "fails": "2", "kind": kind}, a=1.2)
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        comparison = result.comparisons["fast"]
        self.assertFalse(comparison.faster)
        self.assertIsNone(comparison.speedup)
        self.assertEqual(comparison.reason, f"failed in round 1 ({kind}: it failed)")
        self.assertEqual(result.best, "a")
        self.assertTrue(result.comparisons["a"].faster)

    def test_measures_nothing_more_if_all_candidates_have_failed(self):
        candidates = make_candidates(o=1, a={"fails": "1"}, b={"fails": "2"})
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        self.assertEmpty(result.rounds)
        self.assertEqual(result.best, "o")

    def test_a_candidate_wins_over_a_reference_that_does_not_run(self):
        always = ",".join(str(number) for number in range(1, 40))
        candidates = make_candidates(o={"fails": always}, a=1, b=1.5)
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        comparison = result.comparisons["b"]
        self.assertTrue(comparison.faster)
        self.assertIsNone(comparison.speedup)
        self.assertIsNone(comparison.interval)
        self.assertEqual(comparison.reason, "o does not run (runtime_error): it failed")
        self.assertEqual(result.best, "b")
        self.assertIsNone(result.step_secs("o"))
        self.assertIsNotNone(result.step_secs("b"))

    def test_one_round_is_enough_if_the_reference_failed_before(self):
        candidates = make_candidates(o={"fails": "1", "kind": "out_of_memory"}, a=1)
        failure = Failure(FailureKind.OUT_OF_MEMORY, "too large")
        environment = doubles.DriftingEnvironment(0)
        lines = []
        result = run_confirmation(
            environment, candidates, reference_failure=failure, max_secs=0.0, report=lines.append
        )
        self.assertEqual(lines, ["1 round: a runs, and o does not run (out_of_memory)"])
        self.assertTrue(result.comparisons["a"].faster)
        self.assertEqual(result.best, "a")
        # A label that does not fit alone is not loaded beside another.
        self.assertCountEqual(environment.opened, [["o"], ["a"]])
        # Without the earlier failure, one round gives no verdict.
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates, max_secs=0.0)
        self.assertFalse(result.comparisons["a"].faster)

    def test_a_reference_that_failed_before_and_now_runs_is_compared(self):
        failure = Failure(FailureKind.WORKER_DIED, "it was killed")
        for speed, is_faster in ((1.5, True), (0.8, False)):
            result = run_confirmation(
                doubles.DriftingEnvironment(0),
                make_candidates(o=1, a=speed),
                reference_failure=failure,
            )
            self.assertEqual(result.comparisons["a"].faster, is_faster)
            self.assertLen(result.rounds, LEAST_ROUNDS)

    def test_a_reference_that_does_not_fit_is_measured_alone_from_then_on(self):
        large = {"fails": "1,2,3,4,5,6", "kind": "out_of_memory"}
        environment = doubles.DriftingEnvironment(0)
        result = run_confirmation(environment, make_candidates(o=large, a=1))
        self.assertTrue(result.comparisons["a"].faster)
        first, *others = environment.opened
        self.assertIn(first, (["o"], ["a", "o"]))
        self.assertCountEqual(others, [["o"], ["a"]] * 2)

    def test_retries_a_round_once_if_a_process_died(self):
        lines = []
        candidates = make_candidates(o=1, a={"speed": "1.2", "fails": "2", "kind": "worker_died"})
        environment = doubles.DriftingEnvironment(0)
        result = run_confirmation(environment, candidates, report=lines.append)
        self.assertTrue(result.comparisons["a"].faster)
        for measurements in result.rounds:
            self.assertIsNone(measurements["a"].failure)
            # The labels still take turns; none has processes of its own.
            self.assertEqual(*(len(each.step_secs) for each in measurements.values()))
        self.assertEqual(environment.round, len(result.rounds) + 1)
        self.assertLen([line for line in lines if "it failed: trying once more" in line], 1)

    def test_a_candidate_whose_process_dies_repeatedly_loses(self):
        always = ",".join(map(str, range(1, 99)))
        for fails in (always, "2,3,4,5,6"):
            candidates = make_candidates(
                o=1, a={"speed": "9", "fails": fails, "kind": "worker_died"}
            )
            result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
            self.assertFalse(result.comparisons["a"].faster)
            self.assertIn("failed", result.comparisons["a"].reason)

    def test_compares_in_the_rounds_in_which_the_reference_ran(self):
        candidates = make_candidates(o={"speed": "1", "fails": "1"}, a=1.2)
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        self.assertTrue(result.comparisons["a"].faster)
        np.testing.assert_allclose(result.comparisons["a"].speedup, 1.2)
        self.assertLen(result.rounds, LEAST_ROUNDS + 1)
        self.assertIn(f"{LEAST_ROUNDS} rounds", result.comparisons["a"].reason)

    def test_labels_that_do_not_fit_into_memory_together_are_measured_alone(self):
        environment = doubles.DriftingEnvironment(0, sessions_that_fit=1)
        result = run_confirmation(environment, make_candidates(o=1, a=9))
        self.assertTrue(result.comparisons["a"].faster)
        # The first attempt shows that the labels do not fit; then each has processes of its own.
        self.assertCountEqual(environment.opened[0], ["o", "a"])
        self.assertEqual([len(opened) for opened in environment.opened[1:]], [1] * 2 * LEAST_ROUNDS)

    def test_retries_labels_that_ran_before_and_are_out_of_memory_now(self):
        lines = []
        original = {"speed": "1", "fails": "4,5", "kind": "out_of_memory"}
        environment = doubles.DriftingEnvironment(0, sessions_that_fit=1)
        result = run_confirmation(
            environment, make_candidates(o=original, a=1.5), report=lines.append
        )
        self.assertLen([line for line in lines if "o ran before" in line], 2)
        for measurements in result.rounds:
            self.assertIsNone(measurements["o"].failure)

    def test_reports_that_the_reference_ran_in_the_selection_alone(self):
        later = ",".join(str(number) for number in range(2, 40))
        candidates = make_candidates(o={"speed": "1", "fails": later}, a=1, b=1.5)
        comparison = run_confirmation(doubles.DriftingEnvironment(0), candidates).comparisons["b"]
        self.assertTrue(comparison.faster)
        self.assertEqual(
            comparison.reason,
            "o ran in the choice, and then in none of 2 rounds (runtime_error): it failed",
        )

    def test_a_candidate_that_never_fits_does_not_separate_the_others(self):
        large = {"fails": "1,2,3,4", "kind": "out_of_memory"}
        environment = doubles.DriftingEnvironment(0)
        result = run_confirmation(environment, make_candidates(o=1, a=1.5, large=large))
        self.assertEqual(result.best, "a")
        self.assertIn("out_of_memory", result.comparisons["large"].reason)
        for opened in environment.opened[-LEAST_ROUNDS:]:
            self.assertCountEqual(opened, ["o", "a"])

    def test_nothing_is_best_when_everything_fails(self):
        always = ",".join(str(number) for number in range(1, 40))
        candidates = make_candidates(o={"fails": always}, a={"fails": always})
        self.assertIsNone(run_confirmation(doubles.DriftingEnvironment(0), candidates).best)

    @parameterized.parameters((0.0, 1), (25.0, 2), (37.0, 4), (45.0, 4), (1e9, MOST_ROUNDS))
    def test_only_the_first_round_starts_if_it_would_not_end_in_time(self, max_secs, most):
        # Every round takes 10 s.
        result = run_confirmation(Undecided(0), make_candidates(o=1, a=1), max_secs=max_secs)
        self.assertLessEqual(len(result.rounds), most)
        self.assertGreaterEqual(len(result.rounds), min(most, LEAST_ROUNDS))
        if most < LEAST_ROUNDS:
            self.assertIn("rounds that are needed to tell", result.comparisons["a"].reason)
            self.assertFalse(result.comparisons["a"].faster)

    def test_goes_on_after_the_rounds_of_a_confirmation_without_a_verdict(self):
        candidates = make_candidates(o=1, a=1.5)
        first = run_confirmation(doubles.DriftingEnvironment(0), candidates, max_secs=25.0)
        self.assertLess(len(first.rounds), LEAST_ROUNDS)
        self.assertTrue(first.would_gain_by_rounds)
        lines: list[str] = []
        environment = doubles.DriftingEnvironment(1)
        rest = run_confirmation(
            environment, candidates, earlier_rounds={"a": first.rounds}, report=lines.append
        )
        self.assertEqual(rest.rounds[: len(first.rounds)], first.rounds)
        self.assertEqual(environment.round, len(rest.rounds) - len(first.rounds))
        self.assertLen(rest.rounds, LEAST_ROUNDS)
        self.assertTrue(rest.comparisons["a"].faster)
        self.assertIn(f"after {len(first.rounds)} rounds of an earlier confirmation", lines[0])
        # Rounds of a placement that is not chosen again do not count.
        others = make_candidates(o=1, b=1.5)
        other = run_confirmation(
            doubles.DriftingEnvironment(1), others, earlier_rounds={"a": first.rounds}
        )
        self.assertLen(other.rounds, LEAST_ROUNDS)

    def test_should_stop_waits_for_the_rounds_needed_for_a_verdict(self):
        environment = doubles.DriftingEnvironment(0, noise=0.3)
        result = run_confirmation(
            environment, make_candidates(o=1, a=1.3), should_stop=lambda: True
        )
        self.assertLen(result.rounds, LEAST_ROUNDS)

    def test_rounds_before_the_end_of_the_time_count_without_a_verdict(self):
        class Timed(Undecided):
            def run_steps(self, label, count):
                if self.round > 2:
                    raise TimeLimitReached
                return super().run_steps(label, count)

        result = run_confirmation(Timed(0), make_candidates(o=1, a=1.5))
        self.assertLen(result.rounds, 2)
        comparison = result.comparisons["a"]
        self.assertFalse(comparison.faster)
        self.assertIn(f"in 2 of the {LEAST_ROUNDS} rounds that are needed", comparison.reason)

    def test_raises_if_the_time_is_over_before_the_end_of_the_first_round(self):
        class Timed(Undecided):
            def run_steps(self, label, count):
                raise TimeLimitReached

        with self.assertRaises(TimeLimitReached):
            run_confirmation(Timed(0), make_candidates(o=1, a=1.5))

    def test_raises_if_interrupted_before_a_verdict_is_possible(self):
        class Interrupted(Undecided):
            def run_steps(self, label, count):
                if self.round > self.last:
                    raise KeyboardInterrupt
                return super().run_steps(label, count)

        environment = Interrupted(0)
        environment.last = LEAST_ROUNDS - 1
        with self.assertRaises(KeyboardInterrupt):
            run_confirmation(environment, make_candidates(o=1, a=1))
        environment = Interrupted(0)
        environment.last = LEAST_ROUNDS
        result = run_confirmation(environment, make_candidates(o=1, a=1))
        self.assertLen(result.rounds, LEAST_ROUNDS)
        self.assertEqual(environment.asked[-1], "stop")

    def test_every_round_is_reported(self):
        lines = []
        candidates = make_candidates(o=1, a=1.5, b=1.2)
        run_confirmation(doubles.DriftingEnvironment(0), candidates, report=lines.append)
        self.assertStartsWith(lines[0], "choosing: a 1.50x, b 1.20x o")
        self.assertStartsWith(lines[1], "1 round: a 1.500x o, at least 4 are needed")
        self.assertStartsWith(lines[-1], "4 rounds: a 1.500x o, between 1.500 and 1.500")
        self.assertLen(lines, 1 + LEAST_ROUNDS)

    def test_refuses_invalid_arguments(self):
        environment = doubles.DriftingEnvironment(0)
        with self.assertRaisesRegex(ValueError, "'x' is not among"):
            confirm(environment, make_candidates(o=1, a=1), "x")
        with self.assertRaisesRegex(ValueError, "nothing to compare with 'o'"):
            confirm(environment, make_candidates(o=1), "o")
        with self.assertRaisesRegex(ValueError, "at least 1, not 0"):
            survey(environment, make_candidates(o=1, a=1), "o", rounds=0)
        self.assertEmpty(environment.asked)


class ConfirmationTest(absltest.TestCase):
    def test_step_times_and_speedups_agree(self):
        candidates = make_candidates(o=1, a=1.5, b=1.2)
        result = run_confirmation(doubles.DriftingEnvironment(5, noise=0.1), candidates)
        for label, comparison in result.comparisons.items():
            self.assertAlmostEqual(
                result.step_secs("o") / result.step_secs(label), comparison.speedup
            )
        everywhere = [*result.selection, *result.rounds]
        logs = [math.log(measurements["o"].median_secs) for measurements in everywhere]
        self.assertAlmostEqual(result.step_secs("o"), math.exp(np.mean(logs)))

    def test_the_result_is_json_with_all_measurements(self):
        candidates = make_candidates(o=1, a=1.5, b={"fails": "1"})
        result = run_confirmation(doubles.DriftingEnvironment(0), candidates)
        value = json.loads(json.dumps(result.to_json(), allow_nan=False))
        self.assertEqual(value["reference"], "o")
        self.assertEqual(value["best"], "a")
        self.assertEqual(value["confidence"], 0.95)
        self.assertEqual(value["comparisons"]["a"]["faster"], True)
        self.assertEqual(value["comparisons"]["b"]["speedup"], None)
        self.assertEqual(value["selection"][0]["b"]["failure"]["kind"], "runtime_error")
        self.assertEqual(value["rounds"][0]["o"], result.rounds[0]["o"].to_json())
        self.assertEqual(Confirmation.from_json(value), result)

    def test_a_confirmation_of_an_earlier_version_is_read(self):
        steps = Measurement((0.2, 0.2)).to_json()
        old = {
            "reference": "o",
            "best": "a",
            "confidence": 0.95,
            "comparisons": {
                "a": {"speedup": 2.0, "interval": [1.9, 2.1], "faster": True, "reason": "faster"}
            },
            "rounds": [{"o": steps, "a": steps}],
        }
        result = Confirmation.from_json(old)
        self.assertEqual(result.comparisons["a"].interval, (1.9, 2.1))
        self.assertAlmostEqual(result.step_secs("a"), 0.1)

    def test_a_confirmation_is_immutable(self):
        result = Confirmation("o", (), (), {}, None)
        with self.assertRaises(AttributeError):
            result.best = "a"


class SurveyTest(absltest.TestCase):
    def test_measures_all_labels_in_every_round(self):
        environment = doubles.DriftingEnvironment(1)
        result = survey(environment, make_candidates(o=1, a=1.5, b=0.8), "o", rounds=5)
        self.assertLen(result.rounds, 5)
        for measurements in result.rounds:
            self.assertCountEqual(measurements, ["o", "a", "b"])
        for label, speedup in (("a", 1.5), ("b", 0.8)):
            comparison = result.comparisons[label]
            np.testing.assert_allclose([comparison.speedup, *comparison.interval], speedup)
        self.assertEqual(result.best, "a")
        self.assertStartsWith(result.comparisons["b"].reason, "slower: 0.800x o")

    def test_a_failed_label_is_not_measured_again(self):
        candidates = make_candidates(o=1, a={"fails": "2"}, b=0.8)
        result = survey(doubles.DriftingEnvironment(1), candidates, "o", rounds=4)
        self.assertEqual(["a" in m for m in result.rounds], [True, True, False, False])
        self.assertStartsWith(result.comparisons["a"].reason, "failed in round 2")
        self.assertIsNone(result.comparisons["a"].speedup)
        self.assertEqual(result.best, "o")

    def test_slow_labels_have_as_many_turns_as_the_others(self):
        result = survey(doubles.DriftingEnvironment(1), make_candidates(o=1, a=9, b=0.1), "o")
        for measurements in result.rounds:
            self.assertLen({len(m.step_secs) for m in measurements.values()}, 1)

    def test_every_round_is_reported(self):
        lines = []
        survey(doubles.DriftingEnvironment(1), make_candidates(o=1, a=2), "o", report=lines.append)
        self.assertEqual(lines[0], "round 1/4: a 2.00x o")
        self.assertLen(lines, 4)

    def test_nothing_is_best_if_the_reference_does_not_run(self):
        candidates = make_candidates(o={"fails": "1,2,3,4,5,6,7,8"}, a=2)
        result = survey(doubles.DriftingEnvironment(1), candidates, "o")
        self.assertIsNone(result.best)
        self.assertIsNone(result.step_secs("o"))
        self.assertIsNone(result.step_secs("nobody"))


if __name__ == "__main__":
    absltest.main()
