"""Tests of the picture of training to the end."""

from __future__ import annotations

import importlib.util
import math

from absl.testing import absltest

from benchmarks.live.training_curves import Curve
from benchmarks.live.training_picture import draw_training


@absltest.skipIf(importlib.util.find_spec("matplotlib") is None, "pictures need matplotlib")
class DrawTest(absltest.TestCase):
    def draw(self, runs, **settings):
        from matplotlib.figure import Figure

        axes = Figure().add_subplot()
        draw_training(axes, runs, **settings)
        return axes

    def test_a_curve_is_the_mean_of_the_runs_as_long_as_all_last(self):
        runs = {"original": [Curve((0.0, 4.0), (3.0, 1.0)), Curve((0.0, 2.0), (5.0, 3.0))]}
        [line] = self.draw(runs).lines
        xs, ys = line.get_data()
        self.assertEqual((xs[0], xs[-1]), (0.0, 2.0))
        self.assertEqual((ys[0], ys[-1]), (4.0, 2.5))

    def test_a_placement_keeps_its_colour_where_another_is_missing(self):
        found = [Curve((0.0, 1.0), (2.0, 1.0))]
        colours = [
            self.draw({"original": [], "expert": each, "found": found}).lines[-1].get_color()
            for each in ([], found)
        ]
        self.assertEqual(*colours)

    def test_perplexity_is_the_exponential_of_the_loss(self):
        runs = {"found": [Curve((0.0, 1.0), (1.0, 0.0))]}
        axes = self.draw(runs, perplexity=True)
        self.assertAlmostEqual(axes.lines[0].get_ydata()[0], math.e)
        self.assertEqual(axes.get_ylabel(), "perplexity")


if __name__ == "__main__":
    absltest.main()
