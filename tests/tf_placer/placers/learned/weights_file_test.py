"""Tests of writing weights whole or not at all."""

from __future__ import annotations

import errno
import os
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tf_placer.placers.learned.weights_file import compute_max_bytes, write_weights


class WeightsFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.create_tempdir().full_path)
        self.path = self.directory / "policy.weights.h5"

    def test_weights_get_there_by_a_name_that_keras_takes(self):
        names = []

        def save(path: str) -> None:
            names.append(path)
            pathlib.Path(path).write_bytes(b"new")

        write_weights(save, self.path)
        self.assertEqual(self.path.read_bytes(), b"new")
        self.assertEndsWith(names[0], ".weights.h5")
        self.assertEqual(os.listdir(self.directory), ["policy.weights.h5"])

    def test_what_was_there_stays_where_the_new_cannot_be_written(self):
        self.path.write_bytes(b"old")

        def save(path: str) -> None:
            pathlib.Path(path).write_bytes(b"a part")
            raise OSError(errno.ENOSPC, "Can't close file (time = Sun Nov 22\n, buf = 0x55d0)")

        with self.assertRaises(OSError) as raised:
            write_weights(save, self.path)
        self.assertEqual(raised.exception.filename, str(self.path))
        self.assertEqual(raised.exception.strerror, os.strerror(errno.ENOSPC))
        self.assertEqual(self.path.read_bytes(), b"old")
        self.assertEqual(os.listdir(self.directory), ["policy.weights.h5"])

    def test_where_there_is_no_room_hdf5_is_not_begun(self):
        self.path.write_bytes(b"old")
        begun = []
        with self.assertRaises(OSError) as raised:
            write_weights(begun.append, self.path, 2**60)
        self.assertEqual(raised.exception.filename, str(self.path))
        self.assertEqual((self.path.read_bytes(), begun), (b"old", []))
        self.assertEqual(os.listdir(self.directory), ["policy.weights.h5"])

    def test_the_room_is_enough_for_keras(self):
        model = tf.keras.Sequential([tf.keras.Input([30, 30]), tf.keras.layers.LSTM(50, name="a")])
        model.add(tf.keras.layers.Dense(2))
        model.compile("adam", "mse")
        model.fit(np.ones([1, 30, 30]), np.ones([1, 2]), verbose=0)
        write_weights(model.save_weights, self.path, compute_max_bytes(model.weights))
        self.assertGreater(os.path.getsize(self.path), 4 * model.count_params())
        self.assertLess(os.path.getsize(self.path), compute_max_bytes(model.weights))


if __name__ == "__main__":
    absltest.main()
