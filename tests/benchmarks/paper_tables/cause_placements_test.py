"""Tests of what placers make of a small problem, and of what is said about it."""

from __future__ import annotations

import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.harness.placement_runs import RunKey
from benchmarks.paper_tables import cause_placements
from benchmarks.problems.paper import ProblemKey, read_paper_problem
from tests.benchmarks.made_up_runs import run, write_small_problem

_KEY = ProblemKey("rnnlm_2", "1xK80", small=True)


class PlacementsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)
        write_small_problem(_KEY, self.folder / "problems", "two chains")
        self.problem = read_paper_problem(_KEY, self.folder / "problems")

    def test_a_random_placer_proposes_one_placement_and_others_all_they_have(self):
        self.assertLen(cause_placements.proposals("random", "rnnlm_2", self.problem), 1)
        both = cause_placements.proposals("single_device", "rnnlm_2", self.problem)
        self.assertEqual(sorted(row[0] for row in both.tolist()), [0, 1])

    def test_one_chain_per_device_is_twice_as_fast_as_one_device(self):
        apart = np.array([0, 0, 0, 0, 1, 1, 1, 1])
        found = run(RunKey("rnnlm_2", "1xK80", "auto"), 0.4, assignment=apart.tolist())
        placed = cause_placements.place_all(_KEY, self.problem, ["single_gpu"], found)
        steps = [round(each.causes.step_secs, 6) for each in placed]
        self.assertEqual(steps, [0.8, 0.4])
        self.assertEqual([each.causes.cause for each in placed], ["imbalance", "at the bound"])
        self.assertEqual(placed[1].label, "found by auto")

    def test_what_a_placer_lacks_is_said(self):
        with mock.patch.object(cause_placements, "make_run_placer") as make:
            make.side_effect = [mock.DEFAULT, ImportError("pip install x")]
            make.return_value.propose.side_effect = [np.ones([1, 8], np.int32), np.zeros([0, 8])]
            placed = cause_placements.place_all(_KEY, self.problem, ["metis"])
        self.assertEqual((placed[0].failure, placed[0].causes), ("pip install x", None))


if __name__ == "__main__":
    absltest.main()
