"""Tests of the statistics that the benchmarks share."""

from __future__ import annotations

import math

import numpy as np
from absl.testing import absltest

from benchmarks.harness.statistics import ranks, ratio_and_interval, spearman


class RanksTest(absltest.TestCase):
    def test_smallest_value_has_rank_one(self):
        self.assertEqual(ranks([10.0, 30.0, 20.0]).tolist(), [1, 3, 2])

    def test_equal_values_share_the_mean_of_their_ranks(self):
        self.assertEqual(ranks([5, 1, 5, 5]).tolist(), [3, 1, 3, 3])
        self.assertEqual(ranks([7, 7]).tolist(), [1.5, 1.5])

    def test_infinity_is_the_last(self):
        self.assertEqual(ranks([math.inf, 1, math.inf]).tolist(), [2.5, 1, 2.5])

    def test_no_values_have_no_ranks(self):
        self.assertEqual(ranks([]).tolist(), [])

    def test_nan_is_refused_with_its_index(self):
        with self.assertRaisesRegex(ValueError, "value 1 is NaN"):
            ranks([1, math.nan])

    def test_table_of_numbers_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"shape \(1, 2\)"):
            ranks(np.zeros((1, 2)))


class SpearmanTest(absltest.TestCase):
    def test_any_increasing_relation_is_one_and_any_decreasing_one_minus_one(self):
        values = np.array([0.1, 4.0, 2.0, 3.0])
        self.assertAlmostEqual(spearman(values, np.exp(values)), 1.0)
        self.assertAlmostEqual(spearman(values, -(values**3)), -1.0)

    def test_without_ties_is_the_textbook_formula_of_squared_rank_differences(self):
        rng = np.random.default_rng(0)
        first, second = rng.normal(size=30), rng.normal(size=30)
        differences = first.argsort().argsort() - second.argsort().argsort()
        expected = 1 - 6 * (differences**2).sum() / (30 * (30**2 - 1))
        self.assertAlmostEqual(spearman(first, second), expected)

    def test_hand_worked_case_with_a_tie(self):
        # Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: covariance 4.5, variances 4.5 and 5.
        self.assertAlmostEqual(spearman([1, 2, 2, 3], [1, 3, 2, 4]), 4.5 / math.sqrt(4.5 * 5))

    def test_is_not_defined_for_one_pair_or_for_equal_values(self):
        self.assertTrue(math.isnan(spearman([1], [2])))
        self.assertTrue(math.isnan(spearman([1, 1, 1], [1, 2, 3])))

    def test_values_without_a_partner_are_refused(self):
        with self.assertRaisesRegex(ValueError, "not 2 and 1 values"):
            spearman([1, 2], [1])


class RatioTest(absltest.TestCase):
    def test_slow_phases_of_the_machine_cancel_out(self):
        ratio, (low, high) = ratio_and_interval([2.0, 20.0, 4.0], [1.0, 10.0, 2.0])
        self.assertAlmostEqual(ratio, 2.0)
        self.assertAlmostEqual(high - low, 0.0)

    def test_the_interval_is_students(self):
        # Logarithms -1, 0 and 1: mean 0, standard error 1 / sqrt(3), and t of 2 degrees 4.3027.
        ratio, (low, high) = ratio_and_interval([math.exp(-1), 1.0, math.e], [1.0, 1.0, 1.0])
        self.assertAlmostEqual(ratio, 1.0)
        self.assertAlmostEqual(math.log(high), 4.3027 / math.sqrt(3), places=3)
        self.assertAlmostEqual(math.log(low), -4.3027 / math.sqrt(3), places=3)


if __name__ == "__main__":
    absltest.main()
