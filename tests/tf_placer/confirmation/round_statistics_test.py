"""Tests of the statistics that end a confirmation, by simulating many samples."""

from __future__ import annotations

import math

import numpy as np
from absl.testing import absltest

from tf_placer.confirmation import round_statistics
from tf_placer.confirmation.round_statistics import (
    LEAST_ROUNDS,
    MOST_ROUNDS,
    Verdict,
    estimate,
    judge,
)

_THRESHOLDS = [
    round_statistics._threshold(rounds) for rounds in range(LEAST_ROUNDS, MOST_ROUNDS + 1)
]


def judge_round_by_round(values: np.ndarray, most_rounds: int = MOST_ROUNDS) -> tuple[Verdict, int]:
    """Judges a growing number of rounds; returns the first verdict and the number of rounds."""
    for count in range(1, most_rounds + 1):
        verdict = judge(values[:count].tolist(), most_rounds)
        if verdict is not Verdict.OPEN:
            return verdict, count
    raise AssertionError("the last round leaves nothing open")


class JudgeTest(absltest.TestCase):
    def test_repeated_tests_keep_the_rate_of_false_positives(self):
        # Every sample is tested after every round, without giving up. The expectation is 2.0 %, 400
        # of 20,000, with a standard deviation of 20.
        samples = np.random.default_rng(0).standard_normal((20_000, MOST_ROUNDS))
        counts = np.arange(1, MOST_ROUNDS + 1)
        means = np.cumsum(samples, axis=1) / counts
        squares = np.cumsum(samples**2, axis=1) - counts * means**2
        errors = np.sqrt(squares[:, 1:] / (counts[1:] - 1) / counts[1:])
        looks = (means[:, 1:] / errors)[:, LEAST_ROUNDS - 2 :]
        found = (looks > np.array(_THRESHOLDS)).any(axis=1)
        self.assertBetween(found.sum(), 330, 460)
        # `judge` agrees for the samples that it does not give up.
        for sample, is_found in zip(samples[:300], found[:300], strict=True):
            verdict, _ = judge_round_by_round(sample)
            if verdict is Verdict.FASTER:
                self.assertTrue(is_found)

    def test_finds_a_gain_of_ten_percent_in_noise_of_five(self):
        samples = np.random.default_rng(1).normal(math.log(1.1), 0.05, (1000, MOST_ROUNDS))
        found = [judge_round_by_round(sample) for sample in samples]
        self.assertGreater(sum(verdict is Verdict.FASTER for verdict, _ in found), 950)
        self.assertLess(np.mean([count for _, count in found]), 7)

    def test_gives_up_soon_on_a_slower_candidate(self):
        samples = np.random.default_rng(2).normal(math.log(0.9), 0.05, (500, MOST_ROUNDS))
        found = [judge_round_by_round(sample) for sample in samples]
        self.assertEqual({verdict for verdict, _ in found}, {Verdict.NOT_FASTER})
        self.assertLess(np.mean([count for _, count in found]), LEAST_ROUNDS + 0.5)

    def test_is_open_before_the_first_test_unless_no_round_can_follow(self):
        self.assertEqual(judge([0.5] * (LEAST_ROUNDS - 1)), Verdict.OPEN)
        self.assertEqual(judge([0.5] * 2, most_rounds=2), Verdict.NOT_FASTER)
        self.assertEqual(judge([0.1, 0.2, -0.1, 0.1], most_rounds=4), Verdict.NOT_FASTER)

    def test_decides_on_rounds_without_variance(self):
        self.assertEqual(judge([0.1] * LEAST_ROUNDS), Verdict.FASTER)
        self.assertEqual(judge([0.0] * LEAST_ROUNDS), Verdict.NOT_FASTER)
        self.assertEqual(judge([-0.1] * LEAST_ROUNDS), Verdict.NOT_FASTER)


class EstimateTest(absltest.TestCase):
    def test_mean_and_interval_are_those_of_a_calculation_by_hand(self):
        logs = [0.1, 0.2, 0.3, 0.2]
        found = estimate(logs)
        self.assertAlmostEqual(found.speedup, math.exp(0.2))
        # The standard deviation is sqrt(0.02 / 3), and the threshold of four rounds 5.8409.
        half_width = 5.8409 * math.sqrt(0.02 / 3) / 2
        self.assertAlmostEqual(found.interval[0], math.exp(0.2 - half_width), delta=1e-5)
        self.assertAlmostEqual(found.interval[1], math.exp(0.2 + half_width), delta=1e-5)

    def test_faster_means_that_the_interval_lies_above_one(self):
        for shift in np.linspace(0.0, 0.3, 31):
            logs = (np.array([0.02, -0.03, 0.04, 0.01, -0.02]) + shift).tolist()
            self.assertEqual(estimate(logs).interval[0] > 1, judge(logs) is Verdict.FASTER)

    def test_too_few_rounds_have_no_interval(self):
        self.assertIsNone(estimate([0.1] * (LEAST_ROUNDS - 1)).interval)
        with self.assertRaisesRegex(ValueError, "no round"):
            estimate([])

    def test_the_thresholds_are_quantiles_of_students_t(self):
        for rounds, quantile in enumerate(_THRESHOLDS, start=LEAST_ROUNDS):
            degrees = rounds - 1
            x = np.linspace(0, quantile, 200_001)
            scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
            density = math.exp(scale) / math.sqrt(degrees * math.pi)
            density = density * (1 + x**2 / degrees) ** (-(degrees + 1) / 2)
            area = float(np.sum((density[1:] + density[:-1]) / 2) * (x[1] - x[0]))
            self.assertAlmostEqual(0.5 + area, 0.995, delta=1e-5, msg=str(rounds))


if __name__ == "__main__":
    absltest.main()
