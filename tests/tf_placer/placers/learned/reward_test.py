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
