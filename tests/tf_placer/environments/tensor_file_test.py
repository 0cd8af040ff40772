"""Tests of tensors in files."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.environments.tensor_file import read_tensors, write_tensors


class TensorFileTest(tf.test.TestCase):
    def test_every_type_comes_back_with_its_bits(self):
        path = self.create_tempfile().full_path
        tensors = {
            "f:0": np.array([[1.5, -0.0], [np.nan, np.inf]], np.float32),
            "i:0": np.arange(6, dtype=np.int64).reshape(1, 2, 3),
            "scalar:0": np.array(True),
            "empty:0": np.zeros([0, 4], np.float64),
            "half:0": np.array([1.0, 3.0], tf.bfloat16.as_numpy_dtype),
            "complex:0": np.array([1 + 2j], np.complex64),
        }
        write_tensors(path, tensors)
        read = read_tensors(path)
        self.assertEqual(list(read), list(tensors))
        for name, value in tensors.items():
            self.assertEqual(read[name].dtype, value.dtype, name)
            self.assertEqual(read[name].shape, value.shape, name)
            self.assertEqual(read[name].tobytes(), value.tobytes(), name)

    def test_strings_keep_zero_bytes(self):
        path = self.create_tempfile().full_path
        write_tensors(
            path, {"bytes:0": np.array([b"a\0", b""], object), "text:0": np.array(["ä", "b"])}
        )
        read = read_tensors(path)
        self.assertEqual(read["bytes:0"].tolist(), [b"a\0", b""])
        self.assertEqual(read["text:0"].tolist(), ["ä".encode(), b"b"])

    def test_nothing_is_a_file_too(self):
        path = self.create_tempfile().full_path
        write_tensors(path, {})
        self.assertEqual(read_tensors(path), {})

    def test_names_values_that_are_no_tensors(self):
        with self.assertRaisesRegex(ValueError, "'x:0' cannot be stored as a tensor"):
            write_tensors(self.create_tempfile().full_path, {"x:0": np.array([object()])})

    def test_a_full_disk_is_named(self):
        with self.assertRaises(OSError) as raised:
            write_tensors("/dev/full", {"x": np.ones(10)})
        self.assertEqual(raised.exception.filename, "/dev/full")


if __name__ == "__main__":
    tf.test.main()
