from __future__ import annotations

import io
import os
import random
import zipfile

import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.errors import GraphError
from tf_placer.inputs.feeds_file import read_feeds


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """The beginning of an array of NumPy in a file."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return file.getvalue()


class ReadFeedsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir().full_path, "feeds.npz")

    def write(self, data: bytes, name: str = "x.npy") -> None:
        with zipfile.ZipFile(self.path, "w") as archive:
            archive.writestr(name, data)

    def test_arrays_are_read_by_name(self):
        np.savez(self.path, **{"x": np.arange(3), "a/b:0": np.ones([2, 2])})
        feeds = read_feeds(self.path)
        self.assertEqual({n: a.shape for n, a in feeds.items()}, {"x": (3,), "a/b:0": (2, 2)})

    @parameterized.parameters(
        ((1 << 40,), "<f4", "'x' says that it is larger than the memory"),
        ((1 << 200,), "<f4", "'x' says that it is larger than the memory"),
        ((1 << 20, 1 << 20), "<U100000", "'x' says that it is larger than the memory"),
        ((-1, 4), "<f4", "negative dimensions"),
        ((1 << 40,), "|O", "'x' holds objects of Python"),
        ((5,), "<f4", "EOF"),
    )
    def test_names_an_array_with_an_invalid_header(self, shape, dtype, message):
        self.write(header(shape, dtype) + bytes(16))
        with self.assertRaisesRegex(GraphError, f"the feeds '.*feeds.npz' are not .*{message}"):
            read_feeds(self.path)

    def test_anything_else_in_the_archive_is_no_array(self):
        self.write(b"text", "readme.txt")
        with self.assertRaisesRegex(GraphError, "'readme.txt' is no array"):
            read_feeds(self.path)

    def test_array_without_an_archive_is_no_npz_file(self):
        with open(self.path, "wb") as file:
            file.write(header((1 << 40,)))
        with self.assertRaisesRegex(GraphError, "feeds.npz' are not an .npz file: no zip archive"):
            read_feeds(self.path)

    @parameterized.parameters(np.savez, np.savez_compressed)
    def test_damage_is_met_by_a_sentence(self, save):
        save(self.path, x=np.arange(32, dtype=np.float32))
        with open(self.path, "rb") as file:
            whole = file.read()
        rng = random.Random(0)
        for _ in range(150):
            damaged = bytearray(whole)
            for _ in range(rng.randrange(1, 6)):
                damaged[rng.randrange(len(whole))] = rng.randrange(256)
            with open(self.path, "wb") as file:
                file.write(damaged[: rng.choice([len(whole), rng.randrange(len(whole))])])
            try:
                read_feeds(self.path)
            except GraphError as error:
                self.assertIn(self.path, str(error))


if __name__ == "__main__":
    absltest.main()
