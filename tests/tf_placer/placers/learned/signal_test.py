import numpy as np
from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.placers.learned.signal import (
    MovingAverage,
    counted_samples,
    square_root_signal,
)

_FAILED = Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "made up"))


class SquareRootSignalTest(absltest.TestCase):
    def test_is_the_root_of_the_mean_step_or_the_failing_signal(self):
        measurements = [Measurement((4.0,)), _FAILED, Measurement((1.0, 2.0, 24.0))]
        signals, executed = square_root_signal(measurements, failing_signal=10.0)
        np.testing.assert_allclose(signals, [2, 10, 3])
        np.testing.assert_array_equal(executed, [True, False, True])

    def test_can_use_the_median_step(self):
        signals, _ = square_root_signal(
            [Measurement((1.0, 4.0, 25.0))], failing_signal=10.0, average="median"
        )
        np.testing.assert_allclose(signals, [2])

    def test_warns_when_a_valid_signal_exceeds_the_failing_one(self):
        with self.assertLogs(level="WARNING") as logs:
            signals, _ = square_root_signal([Measurement((144.0,))], failing_signal=10.0)
        np.testing.assert_allclose(signals, [12])
        self.assertIn("sqrt(144 s) = 12, above the failing signal 10", logs.output[0])

    def test_does_not_warn_at_the_failing_signal(self):
        with self.assertNoLogs(level="WARNING"):
            square_root_signal([_FAILED, Measurement((100.0,))], failing_signal=10.0)

    def test_refuses_what_is_no_time(self):
        for secs in (-1.0, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "not step times"):
                square_root_signal([Measurement((1.0, secs))], failing_signal=10.0)

    def test_no_measurements_give_no_signals(self):
        signals, executed = square_root_signal([], failing_signal=10.0)
        self.assertEqual((signals.shape, executed.shape), ((0,), (0,)))


class MovingAverageTest(absltest.TestCase):
    def test_moves_by_hand_worked_steps(self):
        average = MovingAverage(10.0, 0.9).updated(2.0)
        self.assertAlmostEqual(average.value, 9.2)
        self.assertAlmostEqual(average.updated(0.2).value, 8.3)


class CountedSamplesTest(absltest.TestCase):
    def test_failures_count_up_to_the_threshold_and_not_from_it_on(self):
        executed = np.array([True, False, True])
        for num_updates, expected in (
            (0, [True, True, True]),
            (4, [True, True, True]),
            (5, [True, False, True]),
            (6, [True, False, True]),
        ):
            counted = counted_samples(executed, num_updates=num_updates, ignore_failures_after=5)
            self.assertEqual(counted.tolist(), expected)


if __name__ == "__main__":
    absltest.main()
