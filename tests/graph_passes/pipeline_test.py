from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from graph_passes.grouping.grouping import PINNED
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GRANULARITIES, GroupedGraph, group_operations
from tests import graphs
from tests.graph_passes.logical_devices import device_names

tf1 = tf.compat.v1

CPUS = device_names(2)
GPUS = tuple(f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2))


def group(graph: tf.Graph, fetches=(), feeds=(), granularity: str = "coarse") -> GroupedGraph:
    op_graph = OpGraph.from_graph_def(graph.as_graph_def(), fetches, feeds)
    return group_operations(op_graph, granularity)


@functools.cache
def group_once(name: str, granularity: str) -> GroupedGraph:
    made = graphs.share_graph(name)
    return group(made.graph, made.fetches, tuple(made.feeds), granularity)


class PipelineTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(name=list(graphs.FACTORIES), granularity=GRANULARITIES)
    def test_every_group_has_a_legal_device(self, name, granularity):
        grouped = group_once(name, granularity)
        legal = grouped.grouping.legal_devices(grouped.colocation, (*CPUS, *GPUS))
        self.assertEqual(legal.shape, (grouped.grouping.num_groups, 4))
        self.assertTrue(legal.any(axis=1).all())
        pinned = np.array([kind == PINNED for kind in grouped.grouping.kinds])
        self.assertTrue((legal[pinned].sum(axis=1) == 1).all())
        self.assertTrue(legal[~pinned, :2].all())
        self.assertEqual(grouped.num_decisions, (~pinned).sum())
        self.assertEqual(grouped.group_graph.num_groups, grouped.grouping.num_groups)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_grouping_does_not_change_the_graph(self, name):
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        op_graph = OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds))
        arrays = {k: v.copy() for k, v in vars(op_graph).items() if isinstance(v, np.ndarray)}
        before = graph_def.SerializeToString(deterministic=True)
        group_operations(op_graph, "fine")
        self.assertEqual(graph_def.SerializeToString(deterministic=True), before)
        for key, array in arrays.items():
            self.assertAllEqual(getattr(op_graph, key), array, key)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_fine_groups_lie_within_coarse_groups(self, name):
        fine, coarse = group_once(name, "fine"), group_once(name, "coarse")
        assert fine.coarse is not None and fine.clusters is not None
        self.assertIsNone(coarse.clusters)
        np.testing.assert_array_equal(fine.coarse.operation_groups, coarse.operation_groups)
        of_operations = fine.grouping.expand_to_operations(fine.colocation)
        np.testing.assert_array_equal(
            np.where(of_operations < 0, -1, fine.clusters[of_operations]),
            coarse.grouping.expand_to_operations(coarse.colocation),
        )
        # A device that is legal for a coarse group is legal for all fine groups in it.
        legal = coarse.grouping.legal_devices(coarse.colocation, (*CPUS, *GPUS))[fine.clusters]
        self.assertTrue(fine.grouping.legal_devices(fine.colocation, (*CPUS, *GPUS))[legal].all())

    @parameterized.product(name=list(graphs.FACTORIES), granularity=GRANULARITIES)
    def test_assignment_keeps_colocation_groups_together(self, name, granularity):
        grouped = group_once(name, granularity)
        row = np.arange(grouped.grouping.num_groups, dtype=np.int32) % 2
        assignment = grouped.assignment(row, CPUS)
        by_group: dict[int, set[str]] = {}
        for operation, colocated in zip(
            grouped.op_graph.names, grouped.colocation.group.tolist(), strict=True
        ):
            by_group.setdefault(colocated, set()).add(assignment.get(operation, ""))
        self.assertTrue(all(len(devices) == 1 for devices in by_group.values()))
        of_operation = grouped.grouping.expand_to_operations(grouped.colocation)
        for i in np.flatnonzero(grouped.op_graph.needed).tolist():
            if grouped.grouping.kinds[of_operation[i]] != PINNED:
                self.assertEqual(assignment[grouped.op_graph.names[i]], CPUS[row[of_operation[i]]])

    @parameterized.parameters(*graphs.FACTORIES)
    def test_fine_groups_are_the_colocation_groups_of_the_step(self, name):
        grouped = group_once(name, "fine")
        graph, colocated = grouped.op_graph, grouped.colocation.group
        of_operation = grouped.grouping.expand_to_operations(grouped.colocation)
        needed = np.flatnonzero(graph.needed)
        pairs = set(zip(colocated[needed].tolist(), of_operation[needed].tolist(), strict=True))
        self.assertLen(pairs, len(set(colocated[needed].tolist())))
        self.assertLen(pairs, grouped.grouping.num_groups)
        groups = grouped.group_graph
        self.assertEqual(groups.type_counts.sum(), len(needed))
        self.assertContainsSubset(groups.kinds, ["operations", PINNED])
        coarse = group_once(name, "coarse")
        self.assertAllEqual(groups.layers, coarse.group_graph.layers[grouped.clusters])
        self.assertGreaterEqual(
            groups.num_groups, group_once(name, "coarse").group_graph.num_groups
        )

    def test_rejects_unknown_granularity(self):
        made = graphs.matmul_chain()
        with self.assertRaisesRegex(
            ValueError, "unknown granularity 'metis': it is one of coarse, fine"
        ):
            group(made.graph, made.fetches, granularity="metis")

    @parameterized.parameters("lstm", "small_convnet", "while_loop_v1", "cond_v1")
    def test_same_graph_gives_the_same_groups(self, name):
        first, second = (
            group(made.graph, made.fetches, tuple(made.feeds))
            for made in (graphs.FACTORIES[name]() for _ in range(2))
        )
        self.assertAllEqual(first.operation_groups, second.operation_groups)
        self.assertEqual(first.group_graph.names, second.group_graph.names)

    def test_groups_do_not_depend_on_the_order_of_nodes(self):
        made = graphs.lstm()
        graph_def = made.graph.as_graph_def()
        shuffled = tf1.GraphDef()
        shuffled.CopyFrom(graph_def)
        del shuffled.node[:]
        for i in np.random.default_rng(0).permutation(len(graph_def.node)):
            shuffled.node.add().CopyFrom(graph_def.node[i])
        kinds = []
        for each in (graph_def, shuffled):
            op_graph = OpGraph.from_graph_def(each, made.fetches, tuple(made.feeds))
            kinds.append(sorted(group_operations(op_graph).grouping.kinds))
        self.assertEqual(kinds[0].count("rnn_cell"), 6)
        self.assertEqual(kinds[1].count("rnn_cell"), 6)


class DegenerateTest(tf.test.TestCase, parameterized.TestCase):
    def test_single_operation_is_one_group(self):
        with tf.Graph().as_default() as graph:
            tf.constant(1.0, name="only")
        grouped = group(graph)
        self.assertEqual(grouped.grouping.num_groups, 1)
        self.assertEqual(grouped.group_graph.edges.shape, (0, 2))
        self.assertEqual(grouped.group_graph.output_shapes, ((),))
        self.assertEqual(grouped.assignment(np.array([1]), CPUS), {"only": CPUS[1]})

    def test_graph_of_pinned_operations_has_no_decisions(self):
        with tf.Graph().as_default() as graph:
            tf.strings.length("text", name="length")
        grouped = group(graph)
        self.assertEqual(grouped.num_decisions, 0)
        self.assertEqual(grouped.assignment(np.array([1]), CPUS), {})

    def test_fed_graph_has_no_groups(self):
        made = graphs.matmul_chain()
        grouped = group(made.graph, made.fetches, made.fetches)
        self.assertEqual(grouped.grouping.num_groups, 0)
        self.assertEqual(grouped.num_decisions, 0)
        self.assertEqual(grouped.assignment(np.zeros(0, np.int32), CPUS), {})
        self.assertEqual(grouped.grouping.legal_devices(grouped.colocation, CPUS).shape, (0, 2))

    def test_many_operations_without_edges(self):
        with tf.Graph().as_default() as graph:
            for number in range(100):
                tf.no_op(name=f"n{number}")
        grouped = group(graph)
        self.assertEqual(grouped.grouping.num_groups, 100)
        self.assertEqual(grouped.group_graph.work.sum(), 0)

    def test_graph_on_devices_of_the_user_is_pinned(self):
        with tf.Graph().as_default() as graph, tf.device("/device:GPU:1"):
            tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]), name="product")
        grouped = group(graph)
        legal = grouped.grouping.legal_devices(grouped.colocation, (*CPUS, *GPUS))
        self.assertEqual(np.flatnonzero(legal.any(axis=0)).tolist(), [3])
        self.assertEqual(grouped.num_decisions, 0)

    def test_error_names_operations_without_kernel(self):
        with tf.Graph().as_default() as graph:
            value = tf1.placeholder(tf.int32, [2, 2])
            tf.matmul(value, value, name="integers")
        grouped = group(graph, ["integers"], ["Placeholder:0"])
        with self.assertRaisesRegex(GraphError, "'integers'"):
            grouped.grouping.legal_devices(grouped.colocation, GPUS)


if __name__ == "__main__":
    tf.test.main()
