"""Tests of what is kept of a run of training, and of what is read off it."""

from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.live.training_curves import Curve, read_curves, write_curves


class CurveTest(absltest.TestCase):
    def test_the_loss_is_averaged_over_the_last_updates(self):
        curve = Curve((0.0, 1.0, 2.0, 3.0), (4.0, 2.0, 1.0, 3.0))
        self.assertEqual(curve.smooth(2).tolist(), [4.0, 3.0, 1.5, 2.0])
        self.assertEqual(curve.smooth(1).tolist(), list(curve.losses))

    def test_a_loss_is_reached_at_the_first_update_that_has_it(self):
        curve = Curve((0.0, 1.0, 2.5, 3.0), (4.0, 2.0, 1.0, 3.0))
        self.assertEqual(curve.secs_to(1.5, updates=2), 2.5)
        self.assertIsNone(curve.secs_to(1.4, updates=2))


class FileTest(absltest.TestCase):
    def test_runs_come_back_from_a_file(self):
        path = pathlib.Path(self.create_tempdir().full_path, "curves.csv.gz")
        curves = {
            ("a model", "original", 0): Curve((0.0, 0.25), (2.5, 0.123456791)),
            ("a model", "found", 1): Curve((0.0,), (3.0,)),
        }
        write_curves(path, curves)
        first = path.read_bytes()
        self.assertEqual(read_curves(path), curves)
        write_curves(path, curves)
        self.assertEqual(path.read_bytes(), first)


if __name__ == "__main__":
    absltest.main()
