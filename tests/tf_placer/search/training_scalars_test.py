import math
import os
from unittest import mock

import tensorflow as tf

from tests.tf_placer.doubles import update_record
from tf_placer.search.training_scalars import TrainingScalars


class TrainingScalarsTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir().full_path, "tensorboard")

    def points(self) -> dict[str, list[tuple[int, float]]]:
        """Reads every curve of all event files as TensorBoard does."""
        curves: dict[str, list[tuple[int, float]]] = {}
        for name in sorted(os.listdir(self.directory)):
            path = os.path.join(self.directory, name)
            for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
                event = tf.compat.v1.Event.FromString(record)
                for value in event.summary.value:
                    # TensorBoard's EventAccumulator lists these as scalars.
                    self.assertEqual(value.WhichOneof("value"), "simple_value")
                    curves.setdefault(value.tag, []).append((event.step, value.simple_value))
        return curves

    def test_the_horizontal_step_is_the_number_of_observed_placements(self):
        scalars = TrainingScalars(self.directory)
        scalars.write([update_record(0, loss=0.25), update_record(1, loss=0.125)])
        # The points are on disk at once, before the file is closed.
        self.assertEqual(self.points()["ppo/loss"], [(10, 0.25), (20, 0.125)])
        scalars.write([update_record(2, loss=0.0625)])
        scalars.close()
        points = self.points()
        self.assertEqual(points["ppo/loss"], [(10, 0.25), (20, 0.125), (30, 0.0625)])
        self.assertEqual(points["batch/failures"], [(10, 1), (20, 1), (30, 1)])
        self.assertLen(os.listdir(self.directory), 1)

    def test_a_full_disk_is_an_os_error_that_names_the_directory(self):
        scalars = TrainingScalars(self.directory)
        full = tf.errors.ResourceExhaustedError(
            None, None, "{{function_node __wrapped__Flush}} f.v2; No space left\nmore"
        )
        with (
            mock.patch.object(scalars._scalars._writer, "flush", side_effect=full),
            self.assertRaises(OSError) as raised,
        ):
            scalars.write([update_record(0)])
        self.assertEqual(
            str(raised.exception), f"cannot write to {self.directory!r}: f.v2; No space left"
        )

    def test_every_number_of_an_update_has_a_curve(self):
        scalars = TrainingScalars(self.directory)
        scalars.write([update_record(0)])
        scalars.close()
        self.assertEqual(
            sorted(self.points()),
            [
                *("batch/baseline", "batch/best_step_secs", "batch/failures", "batch/mean_reward"),
                *("batch/mean_step_secs", "ppo/divergence", "ppo/entropy", "ppo/gradient_norm"),
                "ppo/loss",
            ],
        )

    def test_missing_numbers_have_no_points(self):
        scalars = TrainingScalars(self.directory)
        update = update_record(
            0, kind="ce", loss=None, gradient_norm=None, best_step_secs=None, mean_step_secs=None
        )
        scalars.write([update])
        scalars.close()
        self.assertEqual(
            sorted(self.points()),
            [
                *("batch/baseline", "batch/failures", "batch/mean_reward"),
                *("ce/divergence", "ce/entropy"),
            ],
        )

    def test_a_loss_that_is_nan_is_written_as_nan(self):
        scalars = TrainingScalars(self.directory)
        scalars.write([update_record(0, loss=math.nan)])
        scalars.close()
        self.assertTrue(math.isnan(self.points()["ppo/loss"][0][1]))

    def test_algorithms_that_take_turns_have_separate_curves(self):
        scalars = TrainingScalars(self.directory)
        scalars.write([update_record(0), update_record(1, kind="ce", loss=3.0)])
        scalars.close()
        points = self.points()
        self.assertEqual(points["ce/loss"], [(20, 3.0)])
        self.assertEqual(points["ppo/loss"], [(10, 0.25)])


if __name__ == "__main__":
    tf.test.main()
