"""Tests of the statistics that the benchmarks share."""

from __future__ import annotations

import math

from absl.testing import absltest

from benchmarks.harness.statistics import ratio_and_interval, spearman


class SpearmanTest(absltest.TestCase):
    def test_hand_worked_case_with_a_tie(self):
        # Ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: covariance 4.5, variances 4.5 and 5.
        self.assertAlmostEqual(spearman([1, 2, 2, 3], [1, 3, 2, 4]), 4.5 / math.sqrt(4.5 * 5))

    def test_infinity_is_the_last(self):
        self.assertAlmostEqual(spearman([1, 2, math.inf], [1, 2, 3]), 1.0)

    def test_is_not_defined_for_one_pair_or_for_equal_values(self):
        self.assertTrue(math.isnan(spearman([1], [2])))
        self.assertTrue(math.isnan(spearman([1, 1, 1], [1, 2, 3])))


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
