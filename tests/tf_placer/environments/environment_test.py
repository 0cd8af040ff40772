"""Tests of what a measurement is."""

from __future__ import annotations

import dataclasses
import json

from absl.testing import absltest

from tf_placer.environments.environment import Failure, FailureKind, Measurement

_OF_REFERENCE = ["reference_secs", "drift"]


class MeasurementTest(absltest.TestCase):
    def test_median_and_distance_between_quartiles(self):
        measurement = Measurement((0.5, 0.1, 0.2, 0.4, 0.3))
        self.assertAlmostEqual(measurement.median_secs, 0.3)
        self.assertAlmostEqual(measurement.spread_secs, 0.2)

    def test_median_and_quartiles_are_without_the_drift_of_the_machine(self):
        steps = (0.5, 0.1, 0.2, 0.4, 0.3)
        slow = Measurement(tuple(4.0 * secs for secs in steps), drift=4.0)
        self.assertEqual(slow.steady_secs, steps)
        self.assertEqual(slow.median_secs, 0.3)
        self.assertAlmostEqual(slow.spread_secs, 0.2)
        self.assertEqual(Measurement(steps).steady_secs, steps)

    def test_total_includes_the_steps_of_the_reference(self):
        self.assertEqual(Measurement((0.5, 0.25), setup_secs=2.0).total_secs, 2.75)
        # The drift was paid, too.
        paired = Measurement((0.5, 0.25), setup_secs=2.0, reference_secs=(1.0, 4.0), drift=2.0)
        self.assertEqual(paired.total_secs, 7.75)
        failure = Failure(FailureKind.TIMEOUT, "too long")
        self.assertEqual(Measurement(failure=failure, setup_secs=1.5).total_secs, 1.5)

    def test_a_failure_has_no_median_and_no_spread(self):
        measurement = Measurement(failure=Failure(FailureKind.TIMEOUT, "too long"))
        self.assertIsNone(measurement.median_secs)
        self.assertIsNone(measurement.spread_secs)
        self.assertIsNone(measurement.steady_secs)

    def test_exactly_one_of_step_times_and_failure(self):
        with self.assertRaises(ValueError):
            Measurement()
        with self.assertRaises(ValueError):
            Measurement((0.1,), Failure(FailureKind.TIMEOUT, "too long"))
        with self.assertRaises(ValueError):
            Measurement(())

    def test_steps_of_the_reference_come_in_pairs_with_those_of_the_placement(self):
        Measurement((0.1, 0.2), reference_secs=(0.3, 0.4))
        for references in ((), (0.1,), (0.1, 0.2, 0.3)):
            with self.assertRaisesRegex(ValueError, "as many steps"):
                Measurement((0.1, 0.2), reference_secs=references)
        with self.assertRaisesRegex(ValueError, "as many steps"):
            Measurement(failure=Failure(FailureKind.TIMEOUT, "too long"), reference_secs=(0.1,))

    def test_a_drift_is_positive(self):
        for drift in (0.0, -1.0, float("nan")):
            with self.assertRaisesRegex(ValueError, "drift"):
                Measurement((0.1,), drift=drift)

    def test_json_brings_every_kind_back(self):
        cases = [Measurement((0.25, 0.5), setup_secs=1.5)]
        cases += [Measurement((0.25,), peak_bytes=(7, 2**40))]
        cases += [Measurement((0.25, 0.5), reference_secs=(0.125, 2.0), drift=1.25)]
        cases += [Measurement(failure=Failure(kind, "why")) for kind in FailureKind]
        cases += [Measurement(failure=Failure(FailureKind.OUT_OF_MEMORY, "why", 2**40))]
        for measurement in cases:
            value = json.loads(json.dumps(measurement.to_json()))
            self.assertEqual(Measurement.from_json(value), measurement)

    def test_json_names_peaks_of_memory_only_where_they_are_known(self):
        value = Measurement((0.25,)).to_json()
        self.assertEqual(list(value), ["step_secs", "failure", "setup_secs"])
        self.assertIsNone(Measurement.from_json(value).peak_bytes)
        value = Measurement((0.25,), peak_bytes=(1, 2)).to_json()
        self.assertEqual(value["peak_bytes"], [1, 2])

    def test_json_names_the_bytes_that_lack_only_where_they_are_known(self):
        failure = Failure(FailureKind.OUT_OF_MEMORY, "why")
        value = Measurement(failure=failure).to_json()
        self.assertEqual(value["failure"], {"kind": "out_of_memory", "message": "why"})
        value = Measurement(failure=dataclasses.replace(failure, excess_bytes=7)).to_json()
        self.assertEqual(value["failure"]["excess_bytes"], 7)

    def test_json_names_the_reference_and_the_drift_where_there_is_one(self):
        value = Measurement((0.25,), reference_secs=(0.5,), drift=2.0).to_json()
        self.assertEqual(list(value), ["step_secs", "failure", "setup_secs", *_OF_REFERENCE])
        self.assertEqual([value[name] for name in _OF_REFERENCE], [[0.5], 2.0])

    def test_json_of_an_earlier_version_is_read(self):
        value = {"step_secs": [0.25, 0.5], "failure": None, "setup_secs": 1.5}
        measurement = Measurement.from_json(value)
        self.assertEqual(measurement, Measurement((0.25, 0.5), setup_secs=1.5))
        self.assertIsNone(measurement.reference_secs)
        self.assertEqual(measurement.drift, 1.0)

    def test_other_json_is_refused(self):
        value = Measurement((0.25,)).to_json()
        with self.assertRaises(ValueError):
            Measurement.from_json({"setup_secs": 1.0})
        with self.assertRaises(ValueError):
            Measurement.from_json({**value, "failure": {"kind": "timeout", "message": ""}})
        with self.assertRaises(ValueError):
            Measurement.from_json({**value, "reference_secs": [0.5, 0.5], "drift": 1.0})
        for step_secs in (0.25, [0.0], [-1.0], [float("inf")], ["1"], [True], [10**400]):
            with self.assertRaisesRegex(ValueError, "step_secs"):
                Measurement.from_json({**value, "step_secs": step_secs})


if __name__ == "__main__":
    absltest.main()
