import itertools
import json
import math
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from tests.tf_placer import doubles
from tf_placer import confirmation as confirmation_module
from tf_placer.confirmation import Confirmation, confirm


def labelled(**speeds):
    """Candidates by label, from their speed or their whole double of an assignment."""
    return {
        label: {"label": label, **(speed if isinstance(speed, dict) else {"speed": str(speed)})}
        for label, speed in speeds.items()
    }


class ConfirmTest(parameterized.TestCase):
    def test_measures_each_label_once_a_round_in_fresh_processes(self):
        environment = doubles.DriftingEnvironment(0)
        result = confirm(environment, labelled(original=1, a=1, b=1), "original", rounds=4)
        self.assertLen(result.rounds, 4)
        for number, measurements in enumerate(result.rounds):
            asked = environment.asked[4 * number : 4 * number + 4]
            self.assertEqual(asked, ["restart", *measurements])
            self.assertCountEqual(measurements, ["original", "a", "b"])
        self.assertLen(environment.asked, 16)

    def test_the_order_of_two_alternates_so_that_a_steady_drift_cancels(self):
        environment = doubles.DriftingEnvironment(0)
        confirm(environment, labelled(a=1, b=1), "a", rounds=5)
        order = "".join(label for label in environment.asked if label != "restart")
        self.assertEqual(order, "ab" + "ba" + "ba" + "ab" + "ab")

    def test_over_twice_as_many_rounds_as_labels_each_is_as_often_at_each_place(self):
        for count in (2, 3, 4):
            labels = [f"l{i}" for i in range(count)]
            candidates = labelled(**dict.fromkeys(labels, 1))
            result = confirm(doubles.DriftingEnvironment(0), candidates, "l0", rounds=2 * count)
            places = [(label, i) for r in result.rounds for i, label in enumerate(r)]
            for place in itertools.product(labels, range(count)):
                self.assertEqual(places.count(place), 2)

    def test_drift_between_rounds_does_not_blur_the_speedup(self):
        result = confirm(doubles.DriftingEnvironment(1), labelled(o=1, fast=1.25, slow=0.5), "o")
        fast, slow = result.comparisons["fast"], result.comparisons["slow"]
        np.testing.assert_allclose([fast.speedup, *fast.interval], 1.25, rtol=1e-12)
        self.assertTrue(fast.faster)
        np.testing.assert_allclose(slow.speedup, 0.5, rtol=1e-12)
        self.assertFalse(slow.faster)
        self.assertStartsWith(slow.reason, "slower: 0.500x o")
        self.assertEqual(result.best, "fast")
        self.assertNotIn("o", result.comparisons)

    def test_speedup_and_interval_match_a_calculation_by_hand(self):
        result = confirm(doubles.DriftingEnvironment(2, noise=0.1), labelled(o=1, a=1.1), "o")
        logs = np.log([r["o"].median_secs / r["a"].median_secs for r in result.rounds])
        half_width = 2.776 * np.std(logs, ddof=1) / np.sqrt(5)
        comparison = result.comparisons["a"]
        np.testing.assert_allclose(comparison.speedup, np.exp(np.mean(logs)))
        np.testing.assert_allclose(
            comparison.interval,
            [np.exp(np.mean(logs) - half_width), np.exp(np.mean(logs) + half_width)],
        )

    def test_equal_candidates_are_seldom_called_faster(self):
        # The rate is 2.5 % by construction: 5 of 200 on average. That more than 12 occur has
        # probability 0.2 %, and the seeds are fixed.
        results = [
            confirm(doubles.DriftingEnvironment(seed, noise=0.03), labelled(o=1, a=1), "o")
            for seed in range(200)
        ]
        alarms = sum(result.comparisons["a"].faster for result in results)
        self.assertLessEqual(alarms, 12)
        covered = sum(
            result.comparisons["a"].interval[0] <= 1 <= result.comparisons["a"].interval[1]
            for result in results
        )
        self.assertBetween(covered, 178, 200)  # 190 on average

    def test_a_true_gain_of_15_percent_is_found_in_noise_of_3_percent(self):
        # For these numbers five rounds find it in more than 99.9 % of all cases.
        results = [
            confirm(doubles.DriftingEnvironment(seed, noise=0.03), labelled(o=1, a=1.15), "o")
            for seed in range(200)
        ]
        self.assertGreaterEqual(sum(r.comparisons["a"].faster for r in results), 190)
        self.assertGreaterEqual(sum(r.best == "a" for r in results), 199)

    def test_exactly_equal_times_are_not_faster(self):
        result = confirm(doubles.DriftingEnvironment(0), labelled(o=1, a=1), "o")
        self.assertFalse(result.comparisons["a"].faster)
        self.assertIn("no faster beyond the noise", result.comparisons["a"].reason)
        self.assertEqual(result.best, "o")

    @parameterized.parameters("out_of_memory", "timeout", "worker_died", "runtime_error")
    def test_a_candidate_that_fails_once_loses_and_is_not_measured_again(self, kind):
        candidates = labelled(o=1, fast={"speed": "9", "fails": "2", "kind": kind}, a=1.2)
        result = confirm(doubles.DriftingEnvironment(0), candidates, "o")
        comparison = result.comparisons["fast"]
        self.assertFalse(comparison.faster)
        self.assertIsNone(comparison.speedup)
        self.assertEqual(comparison.reason, f"failed in round 2 ({kind}): it failed")
        self.assertEqual(["fast" in r for r in result.rounds], [True, True, False, False, False])
        self.assertEqual(result.best, "a")
        self.assertTrue(result.comparisons["a"].faster)

    def test_nothing_more_is_measured_once_all_candidates_have_failed(self):
        candidates = labelled(o=1, a={"fails": "1"}, b={"fails": "2"})
        result = confirm(doubles.DriftingEnvironment(0), candidates, "o")
        self.assertLen(result.rounds, 2)
        self.assertEqual(result.best, "o")

    def test_a_candidate_wins_over_a_reference_that_does_not_run(self):
        candidates = labelled(o={"fails": "1,2,3,4,5"}, a=1, b=1.5, c={"fails": "1"})
        result = confirm(doubles.DriftingEnvironment(0), candidates, "o")
        for label in ("a", "b"):
            comparison = result.comparisons[label]
            self.assertTrue(comparison.faster)
            self.assertIsNone(comparison.speedup)
            self.assertIsNone(comparison.interval)
            self.assertEqual(comparison.reason, "o does not run (out_of_memory): it failed")
        self.assertFalse(result.comparisons["c"].faster)
        self.assertEqual(result.best, "b")
        self.assertIsNone(result.step_secs("o"))

    def test_a_reference_that_fails_now_and_then_is_compared_where_it_ran(self):
        candidates = labelled(o={"speed": "1", "fails": "1,4"}, a=1.2)
        result = confirm(doubles.DriftingEnvironment(0), candidates, "o")
        self.assertTrue(result.comparisons["a"].faster)
        np.testing.assert_allclose(result.comparisons["a"].speedup, 1.2)
        self.assertIn("3 rounds", result.comparisons["a"].reason)
        self.assertEqual(result.best, "a")

    def test_one_round_with_both_times_confirms_nothing(self):
        candidates = labelled(o={"speed": "1", "fails": "1,2,4,5"}, a=3)
        comparison = confirm(doubles.DriftingEnvironment(0), candidates, "o").comparisons["a"]
        np.testing.assert_allclose(comparison.speedup, 3)
        self.assertIsNone(comparison.interval)
        self.assertFalse(comparison.faster)
        self.assertEqual(comparison.reason, "o ran in one round of 5 only")

    def test_nothing_is_best_when_everything_fails(self):
        candidates = labelled(o={"fails": "1"}, a={"fails": "1"})
        self.assertIsNone(confirm(doubles.DriftingEnvironment(0), candidates, "o").best)

    @parameterized.parameters((0.0, 2), (15.0, 2), (25.0, 3), (1e9, 6))
    def test_no_round_starts_after_the_deadline_but_the_first_two(self, deadline_secs, expected):
        environment = doubles.DriftingEnvironment(0)
        clock = mock.Mock()
        clock.monotonic.side_effect = lambda: 500.0 + 10.0 * environment.round
        with mock.patch.object(confirmation_module, "time", clock):
            result = confirm(
                *(environment, labelled(o=1, a=2), "o"), rounds=6, deadline_secs=deadline_secs
            )
        self.assertLen(result.rounds, expected)
        self.assertTrue(result.comparisons["a"].faster)

    def test_progress_is_told_of_each_measurement(self):
        told = []
        result = confirm(
            doubles.DriftingEnvironment(0),
            labelled(o=1, a=1),
            "o",
            rounds=2,
            progress=lambda *event: told.append(event),
        )
        first, second = result.rounds
        self.assertEqual(
            told,
            [
                (1, 2, "o", first["o"]),
                (1, 2, "a", first["a"]),
                (2, 2, "a", second["a"]),
                (2, 2, "o", second["o"]),
            ],
        )

    def test_step_secs_is_the_median_over_the_rounds(self):
        result = confirm(doubles.DriftingEnvironment(5), labelled(o=1, a=2), "o")
        expected = np.median([measurements["a"].median_secs for measurements in result.rounds])
        self.assertAlmostEqual(result.step_secs("a"), expected)

    def test_the_result_is_json_with_all_measurements(self):
        candidates = labelled(o=1, a=1.5, b={"fails": "1"})
        result = confirm(doubles.DriftingEnvironment(0), candidates, "o", rounds=3)
        value = json.loads(json.dumps(result.to_json(), allow_nan=False))
        self.assertEqual(value["reference"], "o")
        self.assertEqual(value["best"], "a")
        self.assertEqual(value["confidence"], 0.95)
        self.assertEqual(value["comparisons"]["a"]["faster"], True)
        self.assertLen(value["comparisons"]["a"]["interval"], 2)
        self.assertEqual(value["comparisons"]["b"]["speedup"], None)
        self.assertEqual(
            [list(r) for r in value["rounds"]], [["o", "a", "b"], ["a", "o"], ["a", "o"]]
        )
        self.assertEqual(value["rounds"][0]["b"]["failure"]["kind"], "out_of_memory")
        self.assertEqual(value["rounds"][0]["o"], result.rounds[0]["o"].to_json())

    def test_bad_arguments_are_named(self):
        environment = doubles.DriftingEnvironment(0)
        with self.assertRaisesRegex(ValueError, "'x' is not among"):
            confirm(environment, labelled(o=1, a=1), "x")
        with self.assertRaisesRegex(ValueError, "nothing to compare with 'o'"):
            confirm(environment, labelled(o=1), "o")
        with self.assertRaisesRegex(ValueError, "at least 2, not 1"):
            confirm(environment, labelled(o=1, a=1), "o", rounds=1)
        self.assertEmpty(environment.asked)

    def test_a_confirmation_does_not_change(self):
        result = Confirmation("o", (), {}, None)
        with self.assertRaises(AttributeError):
            result.best = "a"


class StudentTest(absltest.TestCase):
    def test_the_table_agrees_with_the_integral_of_the_density(self):
        for degrees, quantile in confirmation_module._T_QUANTILES.items():
            x = np.linspace(0, quantile, 200_001)
            scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
            density = math.exp(scale) / math.sqrt(degrees * math.pi)
            density = density * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
            area = float(np.sum((density[1:] + density[:-1]) / 2) * (x[1] - x[0]))
            self.assertAlmostEqual(0.5 + area, 0.975, delta=3e-5, msg=str(degrees))

    def test_between_entries_the_wider_interval_is_taken(self):
        quantile = confirmation_module._t_quantile
        self.assertEqual(
            [quantile(d) for d in (1, 30, 39, 40, 99)], [12.706, 2.042, 2.042, 2.021, 2.0]
        )
        self.assertEqual(quantile(10_000), 1.984)


if __name__ == "__main__":
    absltest.main()
