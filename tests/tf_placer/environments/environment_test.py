"""Tests of what a measurement is."""

from __future__ import annotations

import json

from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement


class MeasurementTest(absltest.TestCase):
    def test_median_and_distance_between_quartiles(self):
        measurement = Measurement((0.5, 0.1, 0.2, 0.4, 0.3))
        self.assertAlmostEqual(measurement.median_secs, 0.3)
        self.assertAlmostEqual(measurement.spread_secs, 0.2)

    def test_a_failure_has_neither(self):
        measurement = Measurement(failure=Failure(FailureKind.TIMEOUT, "too long"))
        self.assertIsNone(measurement.median_secs)
        self.assertIsNone(measurement.spread_secs)

    def test_exactly_one_of_step_times_and_failure(self):
        with self.assertRaises(ValueError):
            Measurement()
        with self.assertRaises(ValueError):
            Measurement((0.1,), Failure(FailureKind.TIMEOUT, "too long"))
        with self.assertRaises(ValueError):
            Measurement(())

    def test_json_brings_every_kind_back(self):
        cases = [Measurement((0.25, 0.5), setup_secs=1.5)]
        cases += [Measurement((0.25,), peak_bytes=(7, 2**40))]
        cases += [Measurement(failure=Failure(kind, "why")) for kind in FailureKind]
        for measurement in cases:
            value = json.loads(json.dumps(measurement.to_json()))
            self.assertEqual(Measurement.from_json(value), measurement)

    def test_json_names_peaks_of_memory_only_where_they_are_known(self):
        value = Measurement((0.25,)).to_json()
        self.assertEqual(list(value), ["step_secs", "failure", "setup_secs"])
        self.assertIsNone(Measurement.from_json(value).peak_bytes)
        value = Measurement((0.25,), peak_bytes=(1, 2)).to_json()
        self.assertEqual(value["peak_bytes"], [1, 2])

    def test_other_json_is_refused(self):
        value = Measurement((0.25,)).to_json()
        with self.assertRaises(KeyError):
            Measurement.from_json({"step_secs": [1.0]})
        with self.assertRaises(ValueError):
            Measurement.from_json({**value, "failure": {"kind": "timeout", "message": ""}})


if __name__ == "__main__":
    absltest.main()
