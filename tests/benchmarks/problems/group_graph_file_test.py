"""Tests of graphs of groups in files."""

from __future__ import annotations

import dataclasses
import pathlib

import numpy as np
from absl.testing import absltest

from benchmarks.problems.group_graph_file import read_group_graph, write_group_graph
from benchmarks.problems.small import SMALL_PROBLEMS
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.problem.problem_groups import group_graph


class GroupGraphFileTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.create_tempdir().full_path) / "groups.json"

    def assert_comes_back(self, groups):
        write_group_graph(groups, self.path)
        again = read_group_graph(self.path)
        for field in dataclasses.fields(GroupGraph):
            before, after = getattr(groups, field.name), getattr(again, field.name)
            if isinstance(before, np.ndarray):
                np.testing.assert_array_equal(before, after, err_msg=field.name)
                self.assertEqual(before.dtype, after.dtype, field.name)
                self.assertEqual(before.shape, after.shape, field.name)
            else:
                self.assertEqual(before, after, field.name)

    def test_what_is_written_comes_back(self):
        for problem in SMALL_PROBLEMS.values():
            self.assert_comes_back(group_graph(problem))

    def test_several_types_unknown_shapes_and_no_edges_come_back(self):
        groups = GroupGraph(
            names=("a", "b"),
            kinds=("rnn_cell", "operations"),
            type_names=("Add", "MatMul", "Mul"),
            type_counts=np.array([[3, 0, 1], [0, 0, 0]], np.int32),
            output_shapes=(((-1, 4), ()), ()),
            edges=np.zeros([0, 2], np.int32),
            edge_bytes=np.zeros([0], np.int64),
            work=np.array([1.5, 0.1 + 0.2]),
            layers=np.array([0, 1], np.int32),
        )
        self.assert_comes_back(groups)


if __name__ == "__main__":
    absltest.main()
