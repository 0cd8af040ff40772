"""Tests of comparing two graphs whose steps took turns."""

from __future__ import annotations

import math

import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.environments.paired_steps import burst_steps, log_speedup

_LOG_1_25 = math.log(1.25)


def _random_pairs(seed: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
    """Step times with noise, where no two are equal."""
    rng = np.random.default_rng(seed)
    reference, own = np.exp(0.03 * rng.standard_normal([2, pairs]))
    return reference * 0.2, own * 0.16


class LogSpeedupTest(parameterized.TestCase):
    def test_one_pair_is_its_own_ratio(self):
        self.assertEqual(log_speedup([0.5], [0.5]), (0.0, 0.0))
        estimate, error = log_speedup([0.5], [0.125])
        self.assertAlmostEqual(estimate, math.log(4.0), places=14)
        self.assertEqual(error, 0.0)

    def test_three_of_four_pairs_count_and_the_slowest_does_not(self):
        # Worked by hand. Both are fastest at their first step, log 0; the slower of each pair is
        # slowed down by 0, 0.1, 0.4 and 0.9. The last pair does not count. The log ratios of the
        # others are 0, -0.1 and 0.2 with median 0, from which they differ by 0, 0.1 and 0.2.
        reference, own = np.exp([[0.0, 0.0, 0.4, 0.9], [0.0, 0.1, 0.2, 0.0]])
        estimate, error = log_speedup(reference, own)
        self.assertAlmostEqual(estimate, 0.0, places=14)
        self.assertAlmostEqual(error, 1.2533 * 1.4826 * 0.1 / math.sqrt(3), places=14)

    def test_half_of_eight_pairs_count(self):
        # Worked by hand. Slowed down by 0, 0.1, 0.2, 0.3 and more: the first four count, whose log
        # ratios are 0, 0.1, -0.2 and 0.3. The median is 0.05, from which they differ by 0.05,
        # 0.05, 0.25 and 0.25, with median 0.15.
        reference = np.exp([0.0, 0.1, 0.0, 0.3, 0.9, 0.9, 0.9, 0.9])
        own = np.exp([0.0, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0])
        estimate, error = log_speedup(reference, own)
        self.assertAlmostEqual(estimate, 0.05, places=14)
        self.assertAlmostEqual(error, 1.2533 * 1.4826 * 0.15 / 2.0, places=14)

    @parameterized.parameters(1, 2, 3, 4, 9, 50)
    def test_equal_series_are_equally_fast(self, pairs):
        secs, _ = _random_pairs(pairs, pairs)
        self.assertEqual(log_speedup(secs, secs), (0.0, 0.0))

    @parameterized.parameters(3, 8, 21, 80)
    def test_a_constant_ratio_is_found_without_error(self, pairs):
        own, _ = _random_pairs(0, pairs)
        # A power of 2, so that there is no rounding.
        for ratio in (0.5, 2.0):
            estimate, error = log_speedup(own * ratio, own)
            self.assertAlmostEqual(estimate, math.log(ratio), places=13)
            self.assertAlmostEqual(error, 0.0, places=13)

    def test_a_drift_hits_both_of_a_pair_and_cancels(self):
        own, _ = _random_pairs(1, 40)
        # The machine becomes four times as slow, and then fast again.
        drift = np.exp2(2.0 * np.sin(np.linspace(0.0, math.pi, 40)))
        estimate, error = log_speedup(1.25 * own * drift, own * drift)
        self.assertAlmostEqual(estimate, _LOG_1_25, places=13)
        self.assertAlmostEqual(error, 0.0, places=13)

    @parameterized.parameters(range(5))
    def test_a_slow_machine_changes_nothing(self, seed):
        reference, own = _random_pairs(seed, 24)
        estimate, error = log_speedup(reference, own)
        slow_estimate, slow_error = log_speedup(2.0 * reference, 2.0 * own)
        self.assertAlmostEqual(slow_estimate, estimate, places=13)
        self.assertAlmostEqual(slow_error, error, places=13)

    def noisy_half(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pairs of which the odd ones are slower than all others; the indices of those."""
        reference, own = _random_pairs(2, 24)
        slower = np.arange(1, 24, 2)
        for secs in (reference, own):
            secs[slower] *= 1.2
        return reference, own, slower

    def test_slow_phases_do_not_move_the_estimate(self):
        reference, own, slower = self.noisy_half()
        expected = log_speedup(reference, own)
        for phase in (slower[:8], slower[4:], slower[2:10]):  # A third of all pairs.
            slow_reference, slow_own = reference.copy(), own.copy()
            slow_reference[phase] *= 1.9
            slow_own[phase] *= 2.2
            self.assertEqual(log_speedup(slow_reference, slow_own), expected)

    def test_slow_phases_of_pairs_that_would_have_counted_move_it_by_noise_alone(self):
        for seed in range(20):
            reference, own = _random_pairs(seed, 60)
            start = 2 * seed
            for secs, factor in ((reference, 2.5), (own, 1.8)):
                secs[start : start + 20] *= factor
            # A slow phase that counted would move it by up to log(2.5 / 1.8) = 0.33. The others
            # differ by 0.04, and a median of 30 of them by a fifth of it; this is five times that.
            self.assertAlmostEqual(log_speedup(reference, own)[0], _LOG_1_25, delta=0.05)

    def test_single_slow_steps_do_not_move_the_estimate(self):
        reference, own, slower = self.noisy_half()
        expected = log_speedup(reference, own)
        for spikes in (slower[:1], slower[::3], slower[1::2]):
            spiky = own.copy()
            spiky[spikes] *= 7.0
            self.assertEqual(log_speedup(reference, spiky), expected)
            spiky = reference.copy()
            spiky[spikes] *= 7.0
            self.assertEqual(log_speedup(spiky, own), expected)

    @parameterized.parameters(1, 2, 3, 4, 5, 8, 13, 40, 101)
    def test_swapping_the_two_negates_the_estimate(self, pairs):
        for seed in range(10):
            reference, own = _random_pairs(seed, pairs)
            estimate, error = log_speedup(reference, own)
            swapped, swapped_error = log_speedup(own, reference)
            self.assertEqual(swapped, -estimate)
            self.assertAlmostEqual(swapped_error, error, places=14)

    def test_the_error_shrinks_with_the_root_of_the_pairs(self):
        reference, own = _random_pairs(3, 20)
        estimate, error = log_speedup(reference, own)
        self.assertGreater(error, 0.0)
        # The same spread in four times as many pairs.
        more_estimate, more_error = log_speedup(np.tile(reference, 4), np.tile(own, 4))
        self.assertAlmostEqual(more_estimate, estimate, places=13)
        self.assertAlmostEqual(more_error, error / 2.0, places=13)

    def test_the_error_is_about_how_far_estimates_are_off(self):
        rng = np.random.default_rng(5)
        # Disturbances of a machine only make steps longer.
        noise = np.exp(0.03 * rng.exponential(size=[400, 2, 64]))
        found = np.array([log_speedup(1.25 * reference, own) for reference, own in noise])
        off, errors = found[:, 0] - _LOG_1_25, found[:, 1]
        self.assertLess(abs(off.mean()), 4.0 * off.std() / math.sqrt(400))
        self.assertBetween(off.std() / np.median(errors), 0.8, 1.25)

    @parameterized.parameters(((), ()), ((0.1,), ()), ((), (0.1,)), ((0.1, 0.1), (0.1,)))
    def test_steps_come_in_pairs(self, reference, own):
        with self.assertRaisesRegex(ValueError, f"not {len(reference)} and {len(own)}"):
            log_speedup(reference, own)


class BurstStepsTest(parameterized.TestCase):
    @parameterized.parameters(
        (100.0, 1), (0.051, 1), (0.049, 2), (0.02, 3), (0.003, 17), (0.0021, 24), (0.0019, 25)
    )
    def test_is_one_step_or_as_many_as_take_so_long(self, step_secs, steps):
        self.assertEqual(burst_steps(step_secs, 0.05), steps)
        self.assertEqual(burst_steps(step_secs / 5.0, 0.01), steps)

    @parameterized.parameters(0.001, 1e-9, 0.0)
    def test_is_never_more_than_25(self, step_secs):
        self.assertEqual(burst_steps(step_secs, 0.05), 25)


if __name__ == "__main__":
    absltest.main()
