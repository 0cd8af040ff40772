"""Tests of the problems that runs are made on."""

from __future__ import annotations

import pathlib
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.problems import paper as paper_problems
from benchmarks.problems.paper import (
    ProblemKey,
    make_problems,
    problem_path,
    read_paper_problem,
    write_parts,
)
from benchmarks.problems.small import SMALL_PROBLEMS
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices

_KEY = ProblemKey("rnnlm_2", "2xK80", small=True)


def _write(key, folder, name="heterogeneous"):
    problem = SMALL_PROBLEMS[name]
    groups, legal = group_graph(problem), legal_devices(problem)
    write_parts(key, folder, groups, legal, problem, num_graph_operations=99)


class PaperProblemsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.create_tempdir().full_path)

    def test_what_is_written_comes_back(self):
        _write(_KEY, self.folder)
        read, problem = read_paper_problem(_KEY, self.folder), SMALL_PROBLEMS["heterogeneous"]
        np.testing.assert_array_equal(read.legal, legal_devices(problem))
        self.assertEqual(read.legal.dtype, np.bool_)
        np.testing.assert_array_equal(read.problem.compute_secs, problem.compute_secs)
        self.assertEqual(read.groups.names, group_graph(problem).names)
        self.assertEqual(read.num_graph_operations, 99)

    def test_equal_problems_have_equal_digests_and_others_have_not(self):
        other = ProblemKey("nmt_2", "2xK80")
        for key, name in ((_KEY, "chain"), (other, "chain")):
            _write(key, self.folder, name)
        digest = read_paper_problem(_KEY, self.folder).digest
        self.assertEqual(digest, read_paper_problem(other, self.folder).digest)
        _write(other, self.folder, "memory")
        self.assertNotEqual(digest, read_paper_problem(other, self.folder).digest)

    def test_what_was_made_from_other_sources_or_is_not_whole_is_missing(self):
        _write(_KEY, self.folder)
        self.assertTrue(paper_problems._is_made(_KEY, self.folder))
        with mock.patch.object(paper_problems, "_sources_digest", return_value="changed"):
            self.assertFalse(paper_problems._is_made(_KEY, self.folder))
        (self.folder / _KEY.folder / "about.json").write_text("{")
        self.assertFalse(paper_problems._is_made(_KEY, self.folder))

    def test_a_model_of_the_catalog_is_built_and_costed(self):
        keys = [ProblemKey("rnnlm_2", "2xK80", each, small=True) for each in ("coarse", "fine")]
        self.assertEqual(make_problems(keys, self.folder), {})
        coarse, fine = (read_paper_problem(key, self.folder) for key in keys)
        self.assertEqual(coarse.problem.operation_names, fine.problem.operation_names)
        self.assertLess(coarse.groups.num_groups, fine.groups.num_groups)
        self.assertGreaterEqual(coarse.num_graph_operations, coarse.problem.num_operations)
        self.assertEqual(coarse.legal.shape, (coarse.problem.num_groups, 3))
        np.testing.assert_array_equal(coarse.legal, legal_devices(coarse.problem))
        self.assertEqual(
            read_problem(problem_path(keys[0], self.folder)).num_groups,
            coarse.groups.num_groups,
        )


if __name__ == "__main__":
    absltest.main()
