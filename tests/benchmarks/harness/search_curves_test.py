"""Tests of the curves of searches, on runs made by hand."""

from __future__ import annotations

import pathlib

from absl.testing import absltest

from benchmarks.harness.placement_runs import RunKey
from benchmarks.harness.search_curves import plot_learning_curves, plot_search_curves
from tests.benchmarks.made_up_runs import failed_run, run

_RUNS = [
    run(RunKey("nmt_2", "2xK80", "post"), 0.5),
    run(RunKey("nmt_2", "2xK80", "random"), None),
    failed_run(RunKey("nmt_2", "2xK80", "scotch"), "not installed"),
    run(RunKey("nmt_2", "2xK80", "heft"), 0.4, samples=1, curve=[[1, 0.1, 0.4]]),
]


class SearchCurvesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_pictures_are_drawn_where_matplotlib_is(self):
        try:
            import matplotlib  # noqa: F401 (whether it is there)
        except ImportError:
            self.skipTest("needs matplotlib")
        plot_search_curves(self.folder / "search.png", "title", _RUNS)
        plot_learning_curves(self.folder / "learning.png", "title", [_RUNS, []])
        for name in ("search.png", "learning.png"):
            self.assertStartsWith((self.folder / name).read_bytes(), b"\x89PNG")

    def test_a_picture_is_as_high_as_its_legend(self):
        try:
            from matplotlib import image
        except ImportError:
            self.skipTest("needs matplotlib")
        heights = []
        for number in (2, 60):
            keys = [RunKey("nmt_2", "2xK80", "post", (("decay", str(n)),)) for n in range(number)]
            path = self.folder / f"{number}.png"
            plot_learning_curves(path, "title", [[run(key, 0.5) for key in keys]])
            heights.append(image.imread(path).shape[0])
        # Sixty lines take about three times what one row of panels does.
        self.assertBetween(heights[1] / heights[0], 2.5, 3.5)

    def test_without_a_step_there_is_no_picture(self):
        plot_search_curves(self.folder / "search.png", "title", _RUNS[1:3])
        plot_learning_curves(self.folder / "learning.png", "title", [_RUNS[2:3]])
        self.assertEmpty(list(self.folder.iterdir()))


if __name__ == "__main__":
    absltest.main()
