from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import merge_group_graph, number_clusters
from tests.graph_passes.grouping.group_graphs import group_graph, random_graph


def small_group_graph() -> GroupGraph:
    """Builds a cell that feeds two groups of operations, one of which feeds a loss."""
    return GroupGraph(
        names=("cell", "left", "right", "loss"),
        kinds=("rnn_cell", "operations", "operations", "softmax"),
        type_names=("Add", "MatMul"),
        type_counts=np.array([[1, 2], [3, 0], [0, 1], [4, 4]], np.int32),
        output_shapes=(((8, 8), (2,)), ((-1, 50), ()), ((30,),), ()),
        edges=np.array([[0, 1], [0, 2], [1, 2], [2, 3]], np.int32),
        edge_bytes=np.array([100, 200, 40, 3], np.int64),
        work=np.array([10.0, 1.0, 2.0, 0.5]),
        layers=np.array([1, 0, 2, 2], np.int32),
    )


class NumberClustersTest(absltest.TestCase):
    def test_clusters_are_numbered_by_first_occurrence(self):
        self.assertEqual(number_clusters(np.array([7, 7, 0, 7, 3, 0])).tolist(), [0, 0, 1, 0, 2, 1])
        self.assertEqual(number_clusters(np.array([2, 1, 0])).tolist(), [0, 1, 2])

    def test_numbers_no_clusters_without_groups(self):
        found = number_clusters(np.zeros(0, np.int64))
        self.assertEqual(found.shape, (0,))
        self.assertEqual(found.dtype, np.int32)


class MergeGroupGraphTest(parameterized.TestCase):
    def test_merges_groups_of_a_small_graph(self):
        merged = merge_group_graph(small_group_graph(), np.array([0, 1, 1, 2], np.int32))
        self.assertEqual(merged.names, ("cell", "left", "loss"))
        self.assertEqual(merged.kinds, ("rnn_cell", "operations", "softmax"))
        self.assertEqual(merged.type_names, ("Add", "MatMul"))
        self.assertEqual(merged.type_counts.tolist(), [[1, 2], [3, 1], [4, 4]])
        self.assertEqual(merged.edges.tolist(), [[0, 1], [1, 2]])
        self.assertEqual(merged.edge_bytes.tolist(), [300, 3])
        self.assertEqual(merged.work.tolist(), [10.0, 3.0, 0.5])
        self.assertEqual(merged.layers.tolist(), [1, 0, 2])
        # The output of the left group stays within the cluster.
        self.assertEqual(merged.output_shapes, (((8, 8), (2,)), ((30,),), ()))

    def test_output_shapes_are_ordered_by_size_with_unknown_ones_last(self):
        merged = merge_group_graph(small_group_graph(), np.array([0, 0, 1, 1], np.int32))
        self.assertEqual(merged.output_shapes, (((8, 8), (2,), (), (-1, 50)), ()))

    def test_clusters_may_have_any_order(self):
        merged = merge_group_graph(small_group_graph(), np.array([1, 0, 0, 1], np.int32))
        self.assertEqual(merged.names, ("left", "cell"))
        self.assertEqual(merged.edges.tolist(), [[0, 1], [1, 0]])
        self.assertEqual(merged.edge_bytes.tolist(), [3, 300])

    def test_single_member_clusters_change_nothing(self):
        groups = dataclasses.replace(
            small_group_graph(), output_shapes=(((8, 8),), ((2,),), ((3,),), ())
        )
        merged = merge_group_graph(groups, np.arange(4, dtype=np.int32))
        for field in dataclasses.fields(GroupGraph):
            before, after = getattr(groups, field.name), getattr(merged, field.name)
            if isinstance(before, np.ndarray):
                self.assertEqual(before.dtype, after.dtype, field.name)
                np.testing.assert_array_equal(before, after)
            else:
                self.assertEqual(before, after)

    def test_single_cluster_has_no_edges(self):
        merged = merge_group_graph(small_group_graph(), np.zeros(4, np.int32))
        self.assertEqual(merged.num_groups, 1)
        self.assertEqual(merged.edges.shape, (0, 2))
        self.assertEqual(merged.output_shapes, ((),))
        self.assertEqual(merged.work.tolist(), [13.5])

    def test_merges_an_empty_graph(self):
        merged = merge_group_graph(group_graph(0, {}), np.zeros(0, np.int32))
        self.assertEqual(merged.num_groups, 0)
        self.assertEqual(merged.edges.shape, (0, 2))
        self.assertEqual(merged.type_counts.shape, (0, 1))

    @parameterized.parameters(*range(5))
    def test_sums_agree_with_single_edges(self, seed):
        groups = random_graph(30, 120, seed)
        membership = number_clusters(np.random.default_rng(seed).integers(0, 7, 30))
        merged = merge_group_graph(groups, membership)
        sent: dict[tuple[int, int], int] = {}
        for (a, b), size in zip(groups.edges.tolist(), groups.edge_bytes.tolist(), strict=True):
            edge = int(membership[a]), int(membership[b])
            if edge[0] != edge[1]:
                sent[edge] = sent.get(edge, 0) + size
        found = map(tuple, merged.edges.tolist())
        self.assertEqual(
            list(zip(found, merged.edge_bytes.tolist(), strict=True)), sorted(sent.items())
        )
        for cluster in range(merged.num_groups):
            members = np.flatnonzero(membership == cluster)
            self.assertEqual(merged.type_counts[cluster, 0], len(members))
            self.assertEqual(merged.work[cluster], len(members))
            self.assertEqual(merged.layers[cluster], members[0])
            self.assertEqual(merged.names[cluster], groups.names[members[0]])

    def test_rejects_invalid_membership(self):
        with self.assertRaisesRegex(ValueError, r"membership has shape \(3,\) for 4 groups"):
            merge_group_graph(small_group_graph(), np.array([0, 1, 2]))
        with self.assertRaisesRegex(ValueError, "membership has a cluster -1"):
            merge_group_graph(small_group_graph(), np.array([0, 1, -1, 2]))
        with self.assertRaisesRegex(ValueError, "membership leaves cluster 1 empty"):
            merge_group_graph(small_group_graph(), np.array([0, 2, 2, 0]))


if __name__ == "__main__":
    absltest.main()
