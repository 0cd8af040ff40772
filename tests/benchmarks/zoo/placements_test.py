"""Placements are counted, and the table adds them up."""

from __future__ import annotations

import pathlib
import unittest.mock

import numpy as np
from absl.testing import absltest

from benchmarks.zoo import placed_runs
from benchmarks.zoo.placements import Counts, count_kind, placements_table
from tf_placer.environments.loaded_graph import SessionFailed
from tf_placer.files import read_json

_KIND = "counters_v2"


class PlacementsTest(absltest.TestCase):
    def count(self, placements: int) -> Counts:
        path = pathlib.Path(self.create_tempdir().full_path) / "counts.json"
        count_kind(_KIND, placements, str(path))
        return Counts(**read_json(path))

    def test_counts_what_runs_and_computes_the_same(self):
        counts = self.count(6)
        self.assertEqual((counts.placements, counts.accepted, counts.equal), (6, 6, 6))
        self.assertEqual(counts.problem, "")
        self.assertGreater(counts.operations, counts.groups)

    def test_counts_what_fails_and_what_differs(self):
        failure = SessionFailed(ValueError("it fails\nat length"), "the initializers", 0)
        answers = [failure, {"x": np.zeros(2)}]
        with unittest.mock.patch.object(placed_runs.PlacedGraph, "values", side_effect=answers):
            counts = self.count(2)
        self.assertEqual((counts.placements, counts.accepted, counts.equal), (2, 1, 0))
        self.assertEqual(counts.problem, "placement 0: the initializers: it fails")

    def test_the_last_row_of_the_table_adds_up(self):
        table = placements_table(
            [Counts("a", 100, 10, 3, 3, 2, 1.0, "differs"), Counts("b", 1000, 20, 4, 4, 4, 1.0)]
        )
        self.assertEqual(
            table.splitlines()[2:],
            [
                "| a | 100 | 10 | 3 | 3 | 2 | differs |",
                "| b | 1,000 | 20 | 4 | 4 | 4 |  |",
                "| all |  |  | 7 | 7 | 6 |  |",
            ],
        )


if __name__ == "__main__":
    absltest.main()
