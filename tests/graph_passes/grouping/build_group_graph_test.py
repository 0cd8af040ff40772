from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.grouping import OPERATIONS, Grouping
from graph_passes.op_graph import OpGraph
from tests import graphs
from tests.graph_passes.grouping.models import Groups

tf1 = tf.compat.v1


def group_graph_of(graph: tf.Graph, groups: dict[str, int], fetches=(), feeds=()) -> GroupGraph:
    """Builds the group graph of groups given by operation names."""
    op_graph = OpGraph.from_graph_def(graph.as_graph_def(), fetches, feeds)
    colocation = find_colocation_groups(op_graph)
    group = np.array([groups.get(name, -1) for name in colocation.first_names], np.int32)
    count = int(group.max()) + 1
    grouping = Grouping(group, (OPERATIONS,) * count, np.zeros(count, bool))
    return build_group_graph(op_graph, colocation, grouping)


@functools.cache
def groups_of(name: str) -> Groups:
    return Groups(graphs.share_graph(name))


class BuildGroupGraphTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        with tf.Graph().as_default() as graph:
            # 0: start; 1: left, same; 2: right, end.
            start = tf.fill([2, 3], 1.0, name="start")
            left = tf.exp(start, name="left")
            same = tf.tile(tf.expand_dims(left, 0, name="same"), [4, 1, 1], name="tiled")
            right = tf.add_n([start, tf.negative(start, name="minus")], name="right")
            tf.reduce_sum(right + tf.reduce_sum(same, axis=0, name="sum"), name="end")
        self.graph = graph
        self.groups = {
            **dict.fromkeys(["start", "start/dims"], 0),
            **dict.fromkeys(["left", "same", "tiled"], 1),
            **dict.fromkeys(["minus", "right", "sum", "add", "end"], 2),
        }
        self.groups["start/value"] = 0

    def test_builds_the_group_graph_of_a_small_graph(self):
        found = group_graph_of(self.graph, self.groups)
        self.assertEqual(found.num_groups, 3)
        self.assertEqual(found.kinds, (OPERATIONS,) * 3)
        counts = {
            (group, found.type_names[t]): int(n)
            for (group, t), n in np.ndenumerate(found.type_counts)
            if n
        }
        self.assertEqual(counts[1, "Exp"], 1)
        self.assertEqual(counts[1, "ExpandDims"], 1)
        self.assertEqual(counts[2, "Sum"], 2)
        self.assertEqual(counts[2, "AddN"], 1)
        self.assertEqual(found.type_counts.dtype, np.int32)
        self.assertEqual(found.type_counts.sum(), sum(counts.values()))

    def test_tensors_cross_to_a_group_once(self):
        found = group_graph_of(self.graph, self.groups)
        # "start" crosses to "left", and once to "right" and "minus"; "tiled" crosses to "sum".
        self.assertEqual(found.edges.tolist(), [[0, 1], [0, 2], [1, 2]])
        self.assertEqual(found.edge_bytes.tolist(), [24, 24, 96])
        self.assertEqual(found.edges.dtype, np.int32)
        self.assertEqual(found.edge_bytes.dtype, np.int64)

    def test_output_shapes_are_sorted_by_size(self):
        with tf.Graph().as_default() as graph:
            small, large = tf.split(tf.zeros([10]), [3, 7], name="split")
            unknown = tf1.placeholder(tf.float32, [None, 2], name="unknown")
            rankless = tf1.placeholder(tf.float32, None, name="rankless")
            for value, name in ((unknown, "a"), (small, "b"), (rankless, "c"), (large, "d")):
                tf.negative(value, name=name)
        groups = dict.fromkeys(["split", "unknown", "rankless"], 0) | dict.fromkeys("abcd", 1)
        found = group_graph_of(graph, groups)
        self.assertEqual(found.output_shapes[0][:2], ((7,), (3,)))
        self.assertCountEqual(found.output_shapes[0][2:], [(-1, 2), ()])
        self.assertEqual(found.output_shapes[1], ())
        self.assertEqual(found.edge_bytes.tolist(), [40])

    def test_work_is_the_sum_over_operations(self):
        found = group_graph_of(self.graph, self.groups)
        # Operations count 16 per element of their largest tensor, and Shape counts 0.
        self.assertEqual(found.work.tolist(), [16 * 6, 16 * (6 + 24), 16 * (6 + 6 + 24 + 6 + 6)])
        self.assertEqual(found.work.dtype, np.float64)

    def test_ignores_operations_outside_the_step(self):
        whole = group_graph_of(self.graph, self.groups)
        part = group_graph_of(self.graph, self.groups, ["right"])
        self.assertEqual(part.edges.tolist(), [[0, 2]])
        self.assertEqual(part.type_counts.sum(axis=1).tolist()[1], 0)
        self.assertLess(part.type_counts.sum(), whole.type_counts.sum())
        self.assertNotIn("Exp", part.type_names)

    def test_fed_tensors_do_not_cross(self):
        fed = group_graph_of(self.graph, self.groups, ["end", "tiled"], ["tiled:0"])
        self.assertEqual(fed.edges.tolist(), [[0, 1], [0, 2]])
        self.assertEqual(fed.output_shapes[1], ())

    def test_names_are_those_of_first_operations(self):
        found = group_graph_of(self.graph, {"minus": 0, "right": 1, "end": 0})
        self.assertEqual(found.names, ("minus", "right"))

    @parameterized.parameters(*graphs.FACTORIES)
    def test_sums_agree_with_the_graph(self, name):
        groups = groups_of(name)
        grouped, found = groups.grouped, groups.grouped.group_graph
        graph = grouped.op_graph
        self.assertEqual(found.type_counts.sum(), graph.needed.sum())
        self.assertEqual(found.kinds, grouped.grouping.kinds)
        self.assertSequenceEqual(found.type_names, sorted(found.type_names))
        self.assertTrue(found.type_counts.any(axis=0).all())
        for number, first in enumerate(found.names):
            self.assertEqual(groups.group[first], number)
        # The expected bytes are those of the set of tensors of each edge.
        sent: dict[tuple[int, int], set[int]] = {}
        for tensor, consumer in zip(graph.edge_tensor, graph.edge_consumer, strict=True):
            producer = graph.names[graph.tensor_producer[tensor]]
            source, target = groups.group.get(producer), groups.group.get(graph.names[consumer])
            if source is not None and target is not None and source != target:
                sent.setdefault((source, target), set()).add(int(tensor))
        self.assertEqual(found.edges.tolist(), [list(edge) for edge in sorted(sent)])
        for edge, total in zip(found.edges.tolist(), found.edge_bytes.tolist(), strict=True):
            sizes = [max(int(graph.tensor_bytes[t]), 0) for t in sent[tuple(edge)]]
            self.assertEqual(total, sum(sizes))
        for number, shapes in enumerate(found.output_shapes):
            leaving = set().union(*(t for (s, _), t in sent.items() if s == number))
            self.assertCountEqual(shapes, [graph.tensor_shapes[t] or () for t in leaving])

    @parameterized.parameters(*graphs.FACTORIES)
    def test_groups_are_numbered_by_their_first_operation(self, name):
        groups = groups_of(name)
        positions = [
            groups.graph.position[groups.graph.index[n]] for n in groups.grouped.group_graph.names
        ]
        self.assertEqual(positions, sorted(positions))


if __name__ == "__main__":
    tf.test.main()
