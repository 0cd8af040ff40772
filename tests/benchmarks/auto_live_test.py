"""Tests of what is told about live searches by `auto`, with an optimiser that pretends."""

from __future__ import annotations

import csv
import pathlib
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from benchmarks import auto_live
from tests.tf_placer.scripted import confirmation, trial
from tf_placer.result import OptimizeResult
from tf_placer.trial_log import ORIGINAL


def made_up(speedups, winner) -> OptimizeResult:
    """A result whose finalists have these speed-ups."""
    confirmed = confirmation(speedups)
    return OptimizeResult(
        tf.compat.v1.GraphDef(),
        winner is not None,
        "because",
        winner=winner,
        confirmation=confirmed,
        finalists={ORIGINAL: trial(0, None), **{label: trial(1, [0]) for label in speedups}},
        trials=(trial(0, None), trial(1, [0])),
    )


class AutoLiveTest(absltest.TestCase):
    def test_what_was_found_is_compared_with_everything_else_side_by_side(self):
        result = made_up({"single_device": 0.8, "expert": 1.25, "auto": 1.6}, "auto")
        value = auto_live.summary("graph", result, 12.34)
        self.assertEqual(value["found"], "auto")
        for label, expected in ((ORIGINAL, 1.6), ("single_device", 2.0), ("expert", 1.28)):
            against = value["against"][label]
            self.assertAlmostEqual(against["speedup"], expected, places=2)
            low, high = against["interval"]
            self.assertBetween(expected, low - 0.01, high + 0.01)
        self.assertEqual(value["secs"], 12.3)

    def test_a_graph_that_stays_as_it_came_is_compared_with_the_others_too(self):
        value = auto_live.summary("graph", made_up({"single_device": 0.5}, None), 1.0)
        self.assertFalse(value["changed"])
        self.assertEqual(value["found"], ORIGINAL)
        self.assertEqual([*value["against"]], ["single_device"])
        self.assertAlmostEqual(value["against"]["single_device"]["speedup"], 2.0, places=2)

    def test_graphs_that_are_done_are_not_searched_again(self):
        directory = pathlib.Path(self.create_tempdir().full_path)
        result = made_up({"single_device": 1.0, "expert": 1.25}, "expert")

        def optimize(graph, *arguments, log_dir, **settings):
            del graph, arguments, settings
            pathlib.Path(log_dir).mkdir(parents=True)
            return result

        arguments = ["--graphs", "two_branches", f"--log_dir={directory / 'log'}"]
        arguments += [f"--out_dir={directory / 'out'}"]
        with mock.patch.object(auto_live.tf_placer, "optimize", optimize, create=True):
            auto_live.main(arguments)
        page = (directory / "out" / "auto_live.md").read_text()
        self.assertRegex(page, r"\| two_branches \| 2 \| .* \| expert \| .* \| 1\.250x \(")
        with open(directory / "out" / "auto_live.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["against"] for row in rows], [ORIGINAL, "single_device"])
        with mock.patch.object(auto_live.tf_placer, "optimize", None, create=True):
            auto_live.main(arguments)
        self.assertEqual((directory / "out" / "auto_live.md").read_text(), page)


if __name__ == "__main__":
    absltest.main()
