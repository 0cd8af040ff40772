"""Tests of writing weights whole or not at all."""

from __future__ import annotations

import errno
import os
import pathlib

from absl.testing import absltest

from tf_placer.placers.learned.weights_file import write_weights


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


if __name__ == "__main__":
    absltest.main()
