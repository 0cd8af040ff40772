"""Tests of pictures as files."""

from __future__ import annotations

import pathlib

import numpy as np
from absl.testing import absltest

from benchmarks.harness.pictures import save_picture

try:
    import matplotlib.figure
    from PIL import Image
except ImportError:
    matplotlib = None


@absltest.skipIf(matplotlib is None, "matplotlib is not installed")
class SavePictureTest(absltest.TestCase):
    def test_it_looks_the_same_and_has_few_colours(self):
        figure = matplotlib.figure.Figure(figsize=(4, 3))
        axes = figure.subplots()
        for line in range(8):
            axes.plot(np.sin(np.linspace(0, 9, 200) + line))
        folder = pathlib.Path(self.create_tempdir().full_path)
        figure.savefig(folder / "all.png", dpi=100)
        save_picture(figure, folder / "few.png", dpi=100)
        with Image.open(folder / "all.png") as image:
            every = np.asarray(image.convert("RGB"), np.float64)
        with Image.open(folder / "few.png") as image:
            self.assertEqual(image.mode, "P")
            few = np.asarray(image.convert("RGB"), np.float64)
        self.assertEqual(every.shape, few.shape)
        self.assertLess(np.abs(every - few).mean(), 2.0)
        sizes = [(folder / name).stat().st_size for name in ("few.png", "all.png")]
        self.assertLess(sizes[0], 0.7 * sizes[1])


if __name__ == "__main__":
    absltest.main()
