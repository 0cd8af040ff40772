"""Tests of comparing two measurements of the same placements."""

from __future__ import annotations

from absl.testing import absltest

from benchmarks.simulator.repeated_agreement import compare_rounds


class RepeatedAgreementTest(absltest.TestCase):
    def test_compares_placements_that_ran_both_times(self):
        first = {"simulated_secs": [1.0, 2.0, 3.0, 4.0], "measured_secs": [2.0, 2.0, 3.0, None]}
        second = {"simulated_secs": [1.0, 2.0, 3.0, 4.0], "measured_secs": [2.0, 4.0, 3.0, 4.0]}
        steps, errors = compare_rounds(first, second)
        # Ranks 1.5, 1.5, 3 against 1, 3, 2.
        self.assertAlmostEqual(steps, 0.0)
        # Simulated by measured: 0.5, 1, 1 against 0.5, 0.5, 1.
        self.assertAlmostEqual(errors, 0.5)


if __name__ == "__main__":
    absltest.main()
