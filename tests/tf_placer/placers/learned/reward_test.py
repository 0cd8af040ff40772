import numpy as np
from absl.testing import absltest, parameterized

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.learned.reward import RewardConfig, RewardFunction

_FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))


def _steps(*all_secs):
    return [Measurement((secs,)) for secs in all_secs]


class RewardTest(parameterized.TestCase):
    def test_is_the_negative_root_of_the_mean_step_or_of_failure_secs(self):
        reward_function = RewardFunction(RewardConfig(failure_secs=100.0))
        batch = reward_function.advantages([*_steps(4.0), _FAILED, Measurement((1.0, 2.0, 24.0))])
        np.testing.assert_allclose(batch.rewards, [-2, -10, -3])
        np.testing.assert_array_equal(batch.counted, [True, True, True])
        np.testing.assert_allclose(batch.step_secs, [4, np.inf, 9])

    def test_is_the_negative_step_time_for_reward_seconds(self):
        reward_function = RewardFunction(RewardConfig(reward="seconds", failure_secs=100.0))
        np.testing.assert_allclose(
            reward_function.advantages([*_steps(4.0), _FAILED]).rewards, [-4, -100]
        )

    def test_can_use_the_median_step(self):
        reward_function = RewardFunction(RewardConfig(step_average="median", failure_reward=10.0))
        batch = reward_function.advantages([Measurement((1.0, 4.0, 25.0))])
        np.testing.assert_allclose(batch.rewards, [-2])

    def test_failure_reward_overrides_failure_secs(self):
        reward_function = RewardFunction(RewardConfig(failure_reward=3.0, failure_secs=100.0))
        np.testing.assert_allclose(reward_function.advantages([_FAILED]).rewards, [-3])

    @parameterized.parameters(("sqrt", 6.0), ("seconds", 18.0))
    def test_failure_reward_is_twice_the_worst_of_the_first_batch_that_ran(self, kind, failing):
        reward_function = RewardFunction(RewardConfig(reward=kind))
        self.assertIsNone(reward_function.advantages([_FAILED, _FAILED]))
        batch = reward_function.advantages([*_steps(4.0, 9.0, 1.0), _FAILED])
        self.assertAlmostEqual(batch.rewards[3], -failing)
        np.testing.assert_allclose(batch.baseline, -failing)
        batch = reward_function.advantages([*_steps(16.0), _FAILED])
        self.assertAlmostEqual(batch.rewards[1], -failing)

    def test_warns_when_running_is_worse_than_failing(self):
        reward_function = RewardFunction(RewardConfig(failure_reward=10.0))
        with self.assertLogs(level="WARNING") as logs:
            batch = reward_function.advantages(_steps(144.0))
        np.testing.assert_allclose(batch.rewards, [-12])
        self.assertIn(
            "takes 144 s has the reward -12, below the failure reward -10", logs.output[0]
        )
        with self.assertNoLogs(level="WARNING"):
            reward_function.advantages([_FAILED, *_steps(100.0)])

    @parameterized.parameters(-1.0, float("nan"), float("inf"))
    def test_refuses_what_is_no_time(self, secs):
        with self.assertRaisesRegex(ValueError, "not step times"):
            RewardFunction(RewardConfig()).advantages([Measurement((1.0, secs))])

    def test_refuses_an_empty_batch(self):
        with self.assertRaisesRegex(ValueError, "at least one measurement"):
            RewardFunction(RewardConfig()).advantages([])


class BaselineTest(absltest.TestCase):
    def test_ema_from_the_failure_reward_moves_after_each_batch(self):
        reward_function = RewardFunction(RewardConfig(failure_reward=10.0))
        batch = reward_function.advantages([*_steps(4.0), _FAILED])
        np.testing.assert_allclose(batch.baseline, -10.0)
        np.testing.assert_allclose(batch.advantages, [8, 0])
        batch = reward_function.advantages(_steps(9.0, 1.0))
        np.testing.assert_allclose(batch.baseline, -(0.9 * 10 + 0.1 * 6))
        np.testing.assert_allclose(batch.advantages, [-3 + 9.6, -1 + 9.6])
        batch = reward_function.advantages(_steps(1.0))
        np.testing.assert_allclose(batch.baseline, -(0.9 * 9.6 + 0.1 * 2))

    def test_ema_may_move_after_each_sample_by_hand_worked_steps(self):
        config = RewardConfig(failure_reward=10.0, baseline_moves="sample", ignore_failures_after=1)
        reward_function = RewardFunction(config)
        batch = reward_function.advantages([*_steps(4.0), _FAILED, *_steps(9.0)])
        np.testing.assert_allclose(batch.baseline, [-10, -9.2, -9.28])
        np.testing.assert_allclose(batch.advantages, [8, -0.8, 6.28])
        # Failures do not count any more, and do not move it.
        batch = reward_function.advantages([*_steps(1.0), _FAILED, *_steps(1.0)])
        np.testing.assert_allclose(batch.baseline, [-8.652, -7.8868, -7.8868])
        np.testing.assert_allclose(batch.advantages, [7.652, 0, 6.8868])

    def test_ema_that_moves_after_each_sample_may_start_at_the_mean_of_what_ran(self):
        config = RewardConfig(
            baseline_moves="sample", baseline_start="first_batch", failure_secs=100.0
        )
        reward_function = RewardFunction(config)
        np.testing.assert_allclose(
            reward_function.advantages([_FAILED, _FAILED]).advantages, [0, 0]
        )
        batch = reward_function.advantages([_FAILED, *_steps(4.0, 16.0)])
        np.testing.assert_allclose(batch.baseline, [-3, -3.7, -3.53])

    def test_ema_from_the_first_batch_starts_at_the_mean_of_what_ran(self):
        config = RewardConfig(baseline_start="first_batch", failure_secs=100.0)
        reward_function = RewardFunction(config)
        # All failed: every one counts, and none is better than another.
        batch = reward_function.advantages([_FAILED, _FAILED])
        np.testing.assert_allclose(batch.advantages, [0, 0])
        self.assertTrue(batch.counted.all())
        batch = reward_function.advantages([*_steps(4.0, 16.0), _FAILED])
        np.testing.assert_allclose(batch.baseline, -3.0)
        np.testing.assert_allclose(batch.advantages, [1, -1, -7])
        batch = reward_function.advantages([*_steps(1.0), _FAILED])
        np.testing.assert_allclose(batch.baseline, -3.0)
        batch = reward_function.advantages(_steps(1.0))
        np.testing.assert_allclose(batch.baseline, -(0.9 * 3 + 0.1 * 5.5))

    def test_mean_is_of_all_samples_so_far_failures_included(self):
        config = RewardConfig(reward="seconds", baseline="mean", failure_secs=100.0)
        reward_function = RewardFunction(config)
        batch = reward_function.advantages([*_steps(2.0), _FAILED])
        np.testing.assert_allclose(batch.baseline, -51.0)
        np.testing.assert_allclose(batch.advantages, [49, -49])
        batch = reward_function.advantages(_steps(4.0, 6.0))
        np.testing.assert_allclose(batch.baseline, -28.0)

    def test_batch_is_of_the_batch_alone(self):
        reward_function = RewardFunction(
            RewardConfig(reward="seconds", baseline="batch", failure_reward=9.0)
        )
        np.testing.assert_allclose(
            reward_function.advantages([*_steps(1.0), _FAILED]).advantages, [4, -4]
        )
        np.testing.assert_allclose(
            reward_function.advantages(_steps(1.0, 2.0)).advantages, [0.5, -0.5]
        )

    def test_advantages_can_be_clipped_without_changing_the_baseline(self):
        config = RewardConfig(
            reward="seconds", baseline="batch", failure_secs=100.0, advantage_clip=3.0
        )
        batch = RewardFunction(config).advantages([*_steps(40.0, 69.0), _FAILED, *_steps(71.0)])
        np.testing.assert_allclose(batch.baseline, -70.0)
        np.testing.assert_allclose(batch.advantages, [3, 1, -3, -1])


def _lacks(*all_bytes):
    return [
        Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up", excess_bytes))
        for excess_bytes in all_bytes
    ]


class FailureFactorTest(parameterized.TestCase):
    """Failures that are compared with what ran."""

    def test_a_failure_is_the_upper_quartile_times_more_the_more_memory_it_lacks(self):
        config = RewardConfig(reward="seconds", failure_factor=3.0, failure_secs=100.0)
        batch = RewardFunction(config).advantages(
            [*_steps(1.0, 2.0, 3.0, 4.0, 90.0), *_lacks(100, 50, 25)]
        )
        # By hand: 4 * (1 + 2 * (1 + share) / 2), with shares of the largest excess.
        np.testing.assert_allclose(batch.rewards[5:], [-12, -10, -9])
        np.testing.assert_allclose(batch.rewards[:5], [-1, -2, -3, -4, -90])

    def test_a_failure_that_says_nothing_of_memory_is_the_worst(self):
        config = RewardConfig(failure_factor=4.0)
        batch = RewardFunction(config).advantages([*_steps(9.0, 9.0), _FAILED, *_lacks(0)])
        np.testing.assert_allclose(batch.rewards, [-3, -3, -6, -6])

    def test_a_failure_costs_up_to_twice_as_much_while_most_placements_fail(self):
        for num_failures, factor in ((1, 1.0), (3, 1.0), (5, 1.25), (9, 1.5)):
            config = RewardConfig(reward="seconds", failure_factor=2.0)
            batch = RewardFunction(config).advantages(
                [*_steps(8.0, 8.0, 8.0), *_lacks(*[10] * num_failures)]
            )
            np.testing.assert_allclose(batch.rewards[3:], -16 * factor)

    def test_all_is_compared_with_the_last_hundred(self):
        config = RewardConfig(reward="seconds", failure_factor=2.0)
        reward_function = RewardFunction(config)
        reward_function.advantages([*_steps(50.0), *_lacks(1000)])
        # Two of three failed.
        np.testing.assert_allclose(
            reward_function.advantages(_lacks(500)).rewards, [-50 * 1.75 * 4 / 3]
        )
        reward_function.advantages([*_lacks(*[10] * 100), *_steps(*[4.0] * 100)])
        np.testing.assert_allclose(reward_function.advantages(_lacks(5, 10)).rewards, [-7, -8])

    def test_failures_teach_before_anything_ran_only_if_they_differ_in_memory(self):
        config = RewardConfig(reward="seconds", failure_factor=2.0, baseline_failures=False)
        reward_function = RewardFunction(config)
        self.assertIsNone(reward_function.advantages([_FAILED, _FAILED]))
        batch = reward_function.advantages(_lacks(10, 30, 20))
        np.testing.assert_allclose(batch.advantages, [1 / 3, -1 / 3, 0], atol=1e-12)

    def test_the_state_restores_what_failures_are_compared_with(self):
        config = RewardConfig(failure_factor=2.0, baseline_failures=False)
        first, second = RewardFunction(config), RewardFunction(config)
        first.advantages([*_steps(2.0, 5.0), *_lacks(100)])
        second.restore(first.state(), 1)
        measurements = [*_steps(3.0), *_lacks(40), _FAILED]
        expected, restored = (each.advantages(measurements) for each in (first, second))
        np.testing.assert_array_equal(restored.rewards, expected.rewards)
        np.testing.assert_array_equal(restored.advantages, expected.advantages)

    def test_restores_a_state_of_an_earlier_version(self):
        reward_function = RewardFunction(RewardConfig(failure_factor=2.0))
        state = {"average": -2.0, "reward_sum": 0.0, "num_rewards": 0.0}
        reward_function.restore({name: np.array(value) for name, value in state.items()}, 3)
        np.testing.assert_allclose(reward_function.advantages(_steps(4.0)).baseline, [-2])


class BaselineWithoutFailuresTest(parameterized.TestCase):
    def test_failures_do_not_move_an_average(self):
        for moves in ("batch", "sample"):
            config = RewardConfig(
                baseline_start="first_batch",
                baseline_moves=moves,
                baseline_failures=False,
                failure_secs=100.0,
            )
            reward_function = RewardFunction(config)
            reward_function.advantages(_steps(4.0))
            batch = reward_function.advantages([_FAILED, *_steps(4.0, 4.0)])
            np.testing.assert_allclose(batch.baseline, -2.0)
            np.testing.assert_allclose(batch.advantages, [-8, 0, 0])

    def test_failures_are_not_in_a_mean(self):
        config = RewardConfig(
            reward="seconds", baseline="mean", baseline_failures=False, failure_secs=100.0
        )
        reward_function = RewardFunction(config)
        batch = reward_function.advantages([*_steps(2.0, 4.0), _FAILED])
        np.testing.assert_allclose(batch.baseline, -3.0)
        np.testing.assert_allclose(reward_function.advantages(_steps(9.0)).baseline, -5.0)

    @parameterized.product(baseline=("ema", "mean", "batch"), moves=("batch", "sample"))
    def test_a_batch_of_which_most_failed_has_its_own_mean(self, baseline, moves):
        config = RewardConfig(
            reward="seconds",
            baseline=baseline,
            baseline_moves=moves,
            baseline_start="first_batch",
            baseline_failures=False,
            failure_secs=100.0,
        )
        reward_function = RewardFunction(config)
        batch = reward_function.advantages([_FAILED, *_steps(10.0), _FAILED])
        np.testing.assert_allclose(batch.advantages, [-30, 60, -30])
        # The first placement that ran began the average.
        batch = reward_function.advantages([*_steps(10.0), _FAILED])
        np.testing.assert_allclose(batch.advantages, [0, -90])

    def test_an_average_from_a_failure_starts_when_one_ran(self):
        config = RewardConfig(
            reward="seconds",
            baseline_start="failing",
            baseline_moves="sample",
            baseline_failures=False,
            failure_factor=2.0,
        )
        reward_function = RewardFunction(config)
        reward_function.advantages(_lacks(10, 20))
        batch = reward_function.advantages(_steps(30.0, 50.0))
        np.testing.assert_allclose(batch.baseline, [-90, -84])

    def test_failures_that_do_not_count_are_not_most_of_a_batch(self):
        config = RewardConfig(failure_reward=9.0, baseline_failures=False, ignore_failures_after=0)
        batch = RewardFunction(config).advantages([_FAILED, _FAILED, *_steps(4.0)])
        np.testing.assert_allclose(batch.advantages, [0, 0, 7])
        self.assertFalse(RewardFunction(config).advantages([_FAILED]).counted.any())


class CountedTest(absltest.TestCase):
    def test_failures_count_up_to_the_threshold_and_not_from_it_on(self):
        reward_function = RewardFunction(RewardConfig(failure_reward=10.0, ignore_failures_after=2))
        measurements = [*_steps(4.0), _FAILED, *_steps(16.0)]
        for expected in ([True, True, True], [True, True, True], [True, False, True]):
            batch = reward_function.advantages(measurements)
            self.assertEqual(batch.counted.tolist(), expected)
        self.assertEqual(batch.advantages[1], 0.0)

    def test_a_baseline_does_not_see_what_does_not_count(self):
        reward_function = RewardFunction(RewardConfig(failure_reward=5.0, ignore_failures_after=0))
        reward_function.advantages([*_steps(4.0), _FAILED, *_steps(1.0), _FAILED])
        moved = -(0.9 * 5 + 0.1 * 1.5)
        batch = reward_function.advantages([_FAILED, _FAILED])
        np.testing.assert_allclose(batch.baseline, moved)
        self.assertFalse(batch.counted.any())
        self.assertAlmostEqual(reward_function.advantages(_steps(1.0)).baseline, moved)

    def test_batches_without_any_counted_sample_are_not_counted_as_updates(self):
        reward_function = RewardFunction(RewardConfig(ignore_failures_after=1))
        for _ in range(3):
            self.assertIsNone(reward_function.advantages([_FAILED]))
        self.assertTrue(reward_function.advantages([_FAILED, *_steps(1.0)]).counted.all())
        self.assertFalse(reward_function.advantages([_FAILED, *_steps(1.0)]).counted.all())


class RewardConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        {"failure_reward": 0.0},
        {"failure_secs": -1.0},
        {"failure_factor": 1.0},
        {"failure_factor": float("inf")},
        {"baseline_decay": 1.0},
        {"baseline_decay": -0.1},
        {"ignore_failures_after": -1},
        {"advantage_clip": float("nan")},
    )
    def test_refuses_numbers_outside_their_range(self, **options):
        with self.assertRaisesRegex(ValueError, next(iter(options))):
            RewardConfig(**options)


class NormalizeTest(absltest.TestCase):
    def test_divides_advantages_by_the_deviation_of_the_batch(self):
        reward_function = RewardFunction(
            RewardConfig(reward="seconds", baseline="batch", normalize=True)
        )
        batch = reward_function.advantages([Measurement((secs,)) for secs in (1.0, 2.0, 3.0)])
        deviation = np.sqrt(2 / 3)
        np.testing.assert_allclose(batch.advantages, [1 / deviation, 0.0, -1 / deviation])

    def test_equal_rewards_teach_nothing(self):
        reward_function = RewardFunction(RewardConfig(baseline="batch", normalize=True))
        batch = reward_function.advantages([Measurement((0.3,)), Measurement((0.3 + 1e-12,))])
        np.testing.assert_array_equal(batch.advantages, [0.0, 0.0])


if __name__ == "__main__":
    absltest.main()
