"""Tests of the table that sets simulated steps beside TensorFlow's on emulated GPUs."""

from __future__ import annotations

import numpy as np
from absl.testing import absltest

from benchmarks.simulator.emulated_agreement import Agreement


class AgreementTest(absltest.TestCase):
    def test_a_row_says_what_was_measured_and_how_far_off_the_simulator_is(self):
        agreement = Agreement(
            kinds=["single", "METIS", "random", "random", "random"],
            simulated_secs=np.array([1.0, 0.9, 2.2, 3.0, 5.0]),
            simulated_bytes=np.array([[90, 0], [50, 50], [30, 60], [50, 40], [99, 0]]),
            accepted=np.array([True, True, True, False, True]),
            measured_secs=np.array([1.0, 1.0, 2.0, 3.0, np.nan]),
            processor_secs=np.array([0.01, 0.02, 0.03, 0.04, np.nan]),
            measured_bytes=np.array([[100, 0], [50, 50], [30, 60], [50, 40], [0, 0]]),
            num_operations=1000,
        )
        self.assertEqual(agreement.ran.tolist(), [True, True, True, True, False])
        row = agreement.row("model", "2xK80")
        self.assertEqual(row[:4], ["model", "2xK80", "5", "1.000 s to 3.000 s"])
        # Ranks 2, 1, 3, 4 against 1.5, 1.5, 3, 4.
        self.assertEqual(row[4], "0.949")
        self.assertEqual(row[5], "5.0%")
        self.assertEqual(row[7], "1.000")
        # Peaks of 0.9, 1, 1 and 1 times the measured ones.
        self.assertEqual(row[8:10], ["1.000", "0.900"])
        # One was accepted and ran out of memory, one was refused and ran.
        self.assertEqual(row[10:13], ["1", "1", "1"])
        self.assertEqual(row[13], "25")

    def test_a_model_that_fits_nowhere_has_nothing_to_compare(self):
        nothing = np.full(2, np.nan)
        agreement = Agreement(
            kinds=["single", "METIS"],
            simulated_secs=np.array([1.0, 0.9]),
            simulated_bytes=np.array([[190, 0], [150, 150]]),
            accepted=np.array([False, False]),
            measured_secs=nothing,
            processor_secs=nothing,
            measured_bytes=np.zeros([2, 2], np.int64),
            num_operations=1000,
        )
        row = agreement.row("model", "2xK80")
        self.assertEqual(row, ["model", "2xK80", "2", *[""] * 7, "0", "0", "2", ""])


if __name__ == "__main__":
    absltest.main()
