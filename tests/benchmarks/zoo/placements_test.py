"""Placements are counted once, and the table adds them up."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import unittest.mock

import numpy as np
from absl.testing import absltest

from benchmarks.zoo import placed_runs
from benchmarks.zoo.counts import Counts, placements_table, read_counts
from benchmarks.zoo.placements import count_kind
from tf_placer.environments.loaded_graph import SessionFailed

_KIND = "counters_v2"


class PlacementsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / f"{_KIND}.jsonl"

    def test_goes_on_where_it_stopped(self):
        count_kind(_KIND, 30, str(self.path))
        lines = self.path.read_text().splitlines()
        self.assertLen(lines, 2)
        counts = read_counts(self.path)
        self.assertEqual((counts.placements, counts.accepted, counts.equal), (30, 30, 30))
        self.assertGreater(counts.operations, counts.groups)
        # The second batch was cut short.
        self.path.write_text(lines[0] + "\n" + lines[1][:40])
        count_kind(_KIND, 32, str(self.path))
        self.assertEqual(read_counts(self.path).placements, 32)
        self.assertStartsWith(self.path.read_text(), lines[0] + "\n" + lines[1][:40] + "\n")

    def test_what_another_graph_did_does_not_count(self):
        old = Counts(_KIND, "another", placements=9, accepted=9, equal=9)
        self.path.write_text(json.dumps(dataclasses.asdict(old)) + "\n")
        count_kind(_KIND, 2, str(self.path))
        counts = read_counts(self.path)
        self.assertEqual((counts.placements, counts.problem), (2, ""))
        self.assertEqual(read_counts(self.path, "another").placements, 9)

    def test_counts_what_fails_and_what_differs(self):
        answers = iter(
            [
                SessionFailed(ValueError("it fails\nat length"), "the initialisers", 0),
                {"x": np.zeros(2)},
            ]
        )

        def values(*_):
            answer = next(answers)
            if isinstance(answer, Exception):
                raise answer
            return answer

        with unittest.mock.patch.object(placed_runs.PlacedGraph, "values", values):
            count_kind(_KIND, 2, str(self.path))
        counts = read_counts(self.path)
        self.assertEqual((counts.placements, counts.accepted, counts.equal), (2, 1, 0))
        self.assertEqual(counts.problem, "placement 0: the initialisers: it fails")

    def test_the_last_row_of_the_table_adds_up(self):
        table = placements_table(
            [
                Counts("a", "", 100, 10, 3, 3, 2, 1.0, "differs"),
                Counts("b", "", 1000, 20, 4, 4, 4, 1.0),
            ]
        )
        self.assertEqual(
            table.splitlines()[2:],
            [
                "| a | 100 | 10 | 3 | 3 | 2 | differs |",
                "| b | 1,000 | 20 | 4 | 4 | 4 |  |",
                "| all |  |  | 7 | 7 | 6 |  |",
            ],
        )

    def test_a_problem_that_is_over_does_not_count(self):
        first, second, third = (
            Counts(_KIND, "f", 40, problem="refused: it was"),
            Counts(_KIND, "f", 30, 3, 5, 5, 4, problem="placement 2: it differs"),
            Counts(_KIND, "f", problem="its process died"),
        )
        for lines, counts in (([first], first), ([first, second, third], second)):
            text = "".join(json.dumps(dataclasses.asdict(line)) + "\n" for line in lines)
            self.path.write_text(text)
            self.assertEqual(read_counts(self.path), counts)


if __name__ == "__main__":
    absltest.main()
