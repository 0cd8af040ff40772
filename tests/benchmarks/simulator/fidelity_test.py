"""Tests of how simulated and live steps are compared, with sessions that pretend."""

from __future__ import annotations

import dataclasses
import json
import pathlib

import numpy as np
from absl.testing import absltest

from benchmarks.simulator.fidelity import Comparison, measure_live, read_or_make_placements
from tests.tf_placer.scripted import Script

_PLACEMENTS = [(kind, np.array(row, np.int32)) for kind, row in (("a", [0, 0]), ("b", [0, 1]))]


def _comparison():
    """Three placements in three rounds, each 1, 2 and 4 times as long as a graph of 0.1 s."""
    rounds = np.log([[1.0, 1.0, 3.0], [2.0, 2.0, 2.0], [4.0, 5.0, 3.0]])
    return Comparison(["a", "a", "b"], rounds, 0.1, np.array([0.2, 0.44, 0.6]), 0.2)


class ComparisonTest(absltest.TestCase):
    def test_the_live_figure_is_the_median_of_the_rounds(self):
        comparison = _comparison()
        np.testing.assert_allclose(comparison.live_ratios, [1.0, 2.0, 4.0])
        np.testing.assert_allclose(comparison.live_secs, [0.1, 0.2, 0.4])
        np.testing.assert_allclose(comparison.simulated_ratios, [1.0, 2.2, 3.0])

    def test_errors_are_those_of_relative_steps(self):
        row = _comparison().row("graph")
        self.assertEqual(row[:4], ["graph", "3", "100.0 ms to 400.0 ms", "1.000"])
        # 0 %, 10 % and 25 %; 90 % of the way lies between the last two.
        self.assertEqual(row[5:7], ["10.0%", "22.0%"])

    def test_rounds_that_disagree_limit_what_can_be_seen(self):
        agreeing = _comparison()
        # The first and the third, by geometric means, agree with the second.
        self.assertEqual([agreeing.row("graph")[k] for k in (4, 7)], ["1.000", "1.000"])
        # Rank correlations of 0.5, and of -0.5, for which nothing can be seen.
        for rows, at_best in (([1, 2, 3], [1, 3, 2]), "0.816"), (([1, 2, 3], [2, 3, 1]), "0.000"):
            rounds = np.log(np.array(rows, float).T)
            row = dataclasses.replace(agreeing, log_ratios=rounds).row("graph")
            self.assertEqual(row[4], at_best)


class KeptPlacementsTest(absltest.TestCase):
    def test_a_run_goes_on_with_the_placements_that_it_began_with(self):
        path = pathlib.Path(self.create_tempdir().full_path) / "placements.json"
        for make in (lambda: _PLACEMENTS, self.fail):
            kept = read_or_make_placements(path, 2, make)
            self.assertEqual([kind for kind, _ in kept], ["a", "b"])
            np.testing.assert_array_equal([row for _, row in kept], [[0, 0], [0, 1]])
        with self.assertRaisesRegex(ValueError, "has 2 placements, not 3: name another --log_dir"):
            read_or_make_placements(path, 3, self.fail)


class MeasureLiveTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.script = Script(
            secs=lambda assignment: {(): 0.2, ("x",): 0.2, ("x", "y"): 0.15}[
                tuple(sorted(set(assignment.values())))
            ]
        )
        self.log = pathlib.Path(self.create_tempdir().full_path) / "paired.jsonl"

    def _assign(self, row):
        return {str(group): "xy"[device] for group, device in enumerate(row)}

    def _measure(self, rounds):
        sessions = self.script.environment("", None, None, self._assign, meta_optimizer=False)
        return measure_live("graph", sessions, self._assign, _PLACEMENTS, self.log, rounds)

    def test_placements_take_turns_with_the_graph_as_it_came(self):
        log_ratios, original_secs = self._measure(2)
        np.testing.assert_allclose(np.exp(log_ratios), [[1.0, 1.0], [0.75, 0.75]])
        self.assertAlmostEqual(original_secs, 0.2)
        # In each round, the original once.
        placed = [self._assign(row) for _, row in _PLACEMENTS]
        self.assertEqual(self.script.measured, [{}, *placed, {}, *placed])

    def test_what_is_in_the_log_is_not_measured_again(self):
        first, _ = self._measure(1)
        entries = [json.loads(line) for line in self.log.read_text().splitlines()]
        # Killed before the last one, and the machine is faster now.
        self.log.write_text(json.dumps(entries[0] | {"original_secs": 0.4}) + "\n")
        self.script.measured.clear()
        log_ratios, original_secs = self._measure(1)
        np.testing.assert_allclose(log_ratios, first)
        self.assertEqual(self.script.measured, [{}, self._assign(_PLACEMENTS[1][1])])
        self.assertAlmostEqual(original_secs, 0.3)
        self.script.measured.clear()
        self._measure(1)
        self.assertEmpty(self.script.measured)


if __name__ == "__main__":
    absltest.main()
