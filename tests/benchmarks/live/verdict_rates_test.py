"""Tests of counting verdicts on noisy machines."""

from __future__ import annotations

from absl.testing import absltest, parameterized

from benchmarks.live.noisy_machine import NOISE_MODELS
from benchmarks.live.verdict_rates import ends_with_change


class VerdictRatesTest(parameterized.TestCase):
    @parameterized.parameters(*NOISE_MODELS)
    def test_what_is_much_faster_is_found_and_what_is_slower_is_not(self, model):
        found = [ends_with_change(model, [1.4, 1.0], 90.0, seed)[0] for seed in range(20)]
        self.assertGreaterEqual(sum(found), 19)
        found = [ends_with_change(model, [0.8, 0.7], 90.0, seed)[0] for seed in range(20)]
        self.assertEqual(sum(found), 0)

    @parameterized.parameters(*NOISE_MODELS)
    def test_nothing_is_seldom_found_where_there_is_nothing(self, model):
        # 2.1 of 100 on average; more than 7 have a probability of 0.2 %, and the seeds are fixed.
        found = [ends_with_change(model, [1.0] * 4, 120.0, seed)[0] for seed in range(100)]
        self.assertLessEqual(sum(found), 7)

    def test_it_ends_within_its_time_but_for_a_round(self):
        for seed in range(20):
            self.assertLess(ends_with_change("all together", [1.05], 60.0, seed)[1], 75.0)


if __name__ == "__main__":
    absltest.main()
