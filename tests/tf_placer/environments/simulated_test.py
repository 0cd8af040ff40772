"""Tests of measuring by simulation."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from tests.tf_placer.simulation import oracle
from tests.tf_placer.small_problem import (
    BEST,
    ILLEGAL,
    PEAKS,
    STEPS,
    build_layered_problem,
    small_problem,
)
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.simulated import SimulatedEnvironment


def placements(*rows) -> np.ndarray:
    return np.array(rows, np.int32)


class SimulatedEnvironmentTest(absltest.TestCase):
    def test_a_measurement_is_one_step_time_and_the_peaks_of_memory(self):
        environment = SimulatedEnvironment(small_problem())
        self.assertEqual(
            environment.measure(placements(*STEPS)),
            [Measurement((STEPS[row],), peak_bytes=PEAKS[row]) for row in STEPS],
        )

    def test_measures_what_a_plain_simulator_does(self):
        problem = build_layered_problem(10, 3)
        rows = np.random.default_rng(1).integers(3, size=(50, 10), dtype=np.int32)
        measured = SimulatedEnvironment(problem).measure(rows)
        for row, measurement in zip(rows, measured, strict=True):
            expected = oracle.simulate(problem, row)
            self.assertAlmostEqual(measurement.median_secs, expected.step_secs, delta=1e-12)
            self.assertEqual(list(measurement.peak_bytes), expected.peak_bytes)

    def test_results_are_of_plain_python_numbers(self):
        environment = SimulatedEnvironment(small_problem())
        [measurement] = environment.measure(placements(BEST))
        self.assertIs(type(measurement.step_secs[0]), float)
        self.assertIs(type(measurement.peak_bytes[0]), int)

    def test_too_large_a_placement_fails_and_names_the_device_its_peak_and_its_memory(self):
        environment = SimulatedEnvironment(small_problem(gpu_bytes=29))
        fits, fails = environment.measure(placements((0, 1, 0), BEST))
        self.assertIsNone(fits.failure)
        message = "device 'gpu' would hold 30 bytes at once and has room for 29"
        self.assertEqual(fails.failure, Failure(FailureKind.OUT_OF_MEMORY, message, 1))
        self.assertEqual(fails.peak_bytes, (20, 30))

    def test_of_several_devices_the_one_that_lacks_most_is_named(self):
        environment = SimulatedEnvironment(small_problem(cpu_bytes=15, gpu_bytes=10))
        [measurement] = environment.measure(placements(BEST))
        self.assertStartsWith(measurement.failure.message, "device 'gpu' would hold 30 bytes")
        # The bytes that both devices lack.
        self.assertEqual(measurement.failure.excess_bytes, 5 + 20)
        environment = SimulatedEnvironment(small_problem(cpu_bytes=1, gpu_bytes=20))
        [measurement] = environment.measure(placements(BEST))
        self.assertStartsWith(measurement.failure.message, "device 'cpu' would hold 20 bytes")

    def test_an_exact_fit_fits(self):
        environment = SimulatedEnvironment(small_problem(cpu_bytes=20, gpu_bytes=30))
        [measurement] = environment.measure(placements(BEST))
        self.assertIsNone(measurement.failure)

    def test_an_operation_where_it_may_not_go_is_named_with_its_device(self):
        environment = SimulatedEnvironment(small_problem())
        fails, fits = environment.measure(placements(ILLEGAL, BEST))
        message = "operation 'source' may not go on device 'gpu'"
        self.assertEqual(fails.failure, Failure(FailureKind.INVALID_PLACEMENT, message))
        self.assertIsNone(fails.peak_bytes)
        self.assertIsNone(fits.failure)

    def test_without_memory_nothing_is_too_large(self):
        environment = SimulatedEnvironment(small_problem(0, 0), memory=False)
        measured = environment.measure(placements(BEST, ILLEGAL))
        self.assertEqual(measured[0], Measurement((STEPS[BEST],)))
        self.assertEqual(measured[1].failure.kind, FailureKind.INVALID_PLACEMENT)

    def test_no_placements_have_no_measurements(self):
        environment = SimulatedEnvironment(small_problem())
        self.assertEqual(environment.measure(np.zeros([0, 3], np.int32)), [])

    def test_equal_placements_measure_equally_whatever_the_batch_and_the_threads(self):
        problem = build_layered_problem(10, 3)
        rows = np.random.default_rng(1).integers(3, size=(40, 10), dtype=np.int32)
        expected = SimulatedEnvironment(problem, threads=1).measure(rows)
        environment = SimulatedEnvironment(problem, threads=3)
        self.assertEqual(environment.measure(rows), expected)
        self.assertEqual([m for row in rows for m in environment.measure(row[None])], expected)

    def test_refuses_arrays_that_are_no_batch_of_placements(self):
        environment = SimulatedEnvironment(small_problem())
        for wrong in (placements((0, 1)), placements((0, 1, 2)), placements((0, -1, 1))):
            with self.assertRaises(ValueError):
                environment.measure(wrong)


if __name__ == "__main__":
    absltest.main()
