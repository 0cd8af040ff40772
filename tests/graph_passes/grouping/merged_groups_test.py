from __future__ import annotations

import dataclasses

import numpy as np
from absl.testing import absltest, parameterized

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import in_order, merge_group_graph
from tests.graph_passes.grouping.group_graphs import group_graph, random_graph


def hand_made() -> GroupGraph:
    """A cell that feeds two groups of operations, of which one feeds a loss."""
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


class InOrderTest(absltest.TestCase):
    def test_parts_are_numbered_as_they_occur(self):
        self.assertEqual(in_order(np.array([7, 7, 0, 7, 3, 0])).tolist(), [0, 0, 1, 0, 2, 1])
        self.assertEqual(in_order(np.array([2, 1, 0])).tolist(), [0, 1, 2])

    def test_nothing_has_no_parts(self):
        found = in_order(np.zeros(0, np.int64))
        self.assertEqual(found.shape, (0,))
        self.assertEqual(found.dtype, np.int32)


class MergeGroupGraphTest(parameterized.TestCase):
    def test_hand_made_groups(self):
        merged = merge_group_graph(hand_made(), np.array([0, 1, 1, 2], np.int32))
        self.assertEqual(merged.names, ("cell", "left", "loss"))
        self.assertEqual(merged.kinds, ("rnn_cell", "operations", "softmax"))
        self.assertEqual(merged.type_names, ("Add", "MatMul"))
        self.assertEqual(merged.type_counts.tolist(), [[1, 2], [3, 1], [4, 4]])
        self.assertEqual(merged.edges.tolist(), [[0, 1], [1, 2]])
        self.assertEqual(merged.edge_bytes.tolist(), [300, 3])
        self.assertEqual(merged.work.tolist(), [10.0, 3.0, 0.5])
        self.assertEqual(merged.layers.tolist(), [1, 0, 2])
        # What the left one sends stays within the part.
        self.assertEqual(merged.output_shapes, (((8, 8), (2,)), ((30,),), ()))

    def test_output_shapes_are_ordered_by_size_with_unknown_ones_last(self):
        merged = merge_group_graph(hand_made(), np.array([0, 0, 1, 1], np.int32))
        self.assertEqual(merged.output_shapes, (((8, 8), (2,), (), (-1, 50)), ()))

    def test_parts_need_not_be_numbered_in_order(self):
        merged = merge_group_graph(hand_made(), np.array([1, 0, 0, 1], np.int32))
        self.assertEqual(merged.names, ("left", "cell"))
        self.assertEqual(merged.edges.tolist(), [[0, 1], [1, 0]])
        self.assertEqual(merged.edge_bytes.tolist(), [3, 300])

    def test_every_group_by_itself_changes_nothing(self):
        groups = dataclasses.replace(hand_made(), output_shapes=(((8, 8),), ((2,),), ((3,),), ()))
        merged = merge_group_graph(groups, np.arange(4, dtype=np.int32))
        for field in dataclasses.fields(GroupGraph):
            before, after = getattr(groups, field.name), getattr(merged, field.name)
            if isinstance(before, np.ndarray):
                self.assertEqual(before.dtype, after.dtype, field.name)
                np.testing.assert_array_equal(before, after)
            else:
                self.assertEqual(before, after)

    def test_all_in_one_part_has_no_edges(self):
        merged = merge_group_graph(hand_made(), np.zeros(4, np.int32))
        self.assertEqual(merged.num_groups, 1)
        self.assertEqual(merged.edges.shape, (0, 2))
        self.assertEqual(merged.output_shapes, ((),))
        self.assertEqual(merged.work.tolist(), [13.5])

    def test_no_groups_merge_into_none(self):
        merged = merge_group_graph(group_graph(0, {}), np.zeros(0, np.int32))
        self.assertEqual(merged.num_groups, 0)
        self.assertEqual(merged.edges.shape, (0, 2))
        self.assertEqual(merged.type_counts.shape, (0, 1))

    @parameterized.parameters(*range(5))
    def test_sums_are_those_of_every_edge_by_itself(self, seed):
        groups = random_graph(30, 120, seed)
        membership = in_order(np.random.default_rng(seed).integers(0, 7, 30))
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
        for part in range(merged.num_groups):
            members = np.flatnonzero(membership == part)
            self.assertEqual(merged.type_counts[part, 0], len(members))
            self.assertEqual(merged.work[part], len(members))
            self.assertEqual(merged.layers[part], members[0])
            self.assertEqual(merged.names[part], groups.names[members[0]])

    def test_a_wrong_membership_is_refused(self):
        with self.assertRaisesRegex(ValueError, r"membership has shape \(3,\) for 4 groups"):
            merge_group_graph(hand_made(), np.array([0, 1, 2]))
        with self.assertRaisesRegex(ValueError, "membership has a part -1"):
            merge_group_graph(hand_made(), np.array([0, 1, -1, 2]))
        with self.assertRaisesRegex(ValueError, "membership leaves part 1 empty"):
            merge_group_graph(hand_made(), np.array([0, 2, 2, 0]))


if __name__ == "__main__":
    absltest.main()
