from __future__ import annotations

import gc
import itertools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tests import graphs

tf1 = tf.compat.v1


def read(graph: tf.Graph, fetches=(), feeds=()) -> OpGraph:
    return OpGraph.from_graph_def(graph.as_graph_def(), fetches, feeds)


def find_needed_names(graph: OpGraph) -> set[str]:
    return {name for name, needed in zip(graph.names, graph.needed, strict=True) if needed}


class OpGraphTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_columns_agree_with_tensorflow(self, name):
        graph_def = graphs.share_graph(name).graph.as_graph_def()
        graph = OpGraph.from_graph_def(graph_def)
        with tf.Graph().as_default() as expected:
            tf.graph_util.import_graph_def(graph_def, name="")
        self.assertSequenceEqual(graph.names, [node.name for node in graph_def.node])
        operations = [expected.get_operation_by_name(name) for name in graph.names]
        self.assertSequenceEqual(
            [graph.type_of(i) for i in range(graph.num_operations)], [op.type for op in operations]
        )
        tensors = [tensor for op in operations for tensor in op.outputs]
        self.assertLen(graph.tensor_shapes, len(tensors))
        for number, tensor in enumerate(tensors):
            self.assertEqual(graph.tensor_index(tensor.name), number)
            self.assertEqual(
                graph.names[graph.tensor_producer[number]], tensor.op.name, tensor.name
            )
            self.assertEqual(tf.as_dtype(graph.tensor_dtypes[number]), tensor.dtype.base_dtype)
            # TensorFlow's import infers less inside loops.
            sizes = graph.tensor_shapes[number]
            shape = tf.TensorShape(sizes and [None if size < 0 else size for size in sizes])
            merged = shape.merge_with(tensor.shape)
            self.assertEqual(merged.as_proto(), shape.as_proto(), tensor.name)
            if tensor.dtype.base_dtype in (tf.float32, tf.int32):
                expected_bytes = 4 * shape.num_elements() if shape.is_fully_defined() else -1
                self.assertEqual(graph.tensor_bytes[number], expected_bytes)
        numbers = {tensor.name: number for number, tensor in enumerate(tensors)}
        for i, op in enumerate(operations):
            self.assertSequenceEqual(
                graph.input_tensors[i], [numbers[tensor.name] for tensor in op.inputs]
            )
            self.assertSequenceEqual(
                [graph.names[p] for p in graph.producers[i]],
                [tensor.op.name for tensor in op.inputs],
            )
            before = graph.control_edges[graph.control_edges[:, 1] == i, 0]
            self.assertCountEqual(
                {graph.names[b] for b in before}, {c.name for c in op.control_inputs}
            )
            self.assertCountEqual(
                {graph.names[c] for c in graph.consumers[i]},
                {consumer.name for tensor in op.outputs for consumer in tensor.consumers()},
            )
            self.assertLen(set(graph.consumers[i]), len(graph.consumers[i]))

    @parameterized.parameters(*graphs.FACTORIES)
    def test_order_is_topological_except_for_loop_edges(self, name):
        graph = read(graphs.share_graph(name).graph)
        self.assertCountEqual(graph.order, range(graph.num_operations))
        closes = graph.has_type(["NextIteration"])
        for producer, consumer in zip(graph.edge_producer, graph.edge_consumer, strict=True):
            if not closes[producer]:
                self.assertLess(graph.position[producer], graph.position[consumer])
        for before, after in graph.control_edges:
            self.assertLess(graph.position[before], graph.position[after])

    def test_order_is_depth_first(self):
        with tf.Graph().as_default() as graph:
            values = {chain: tf.ones([], name=f"{chain}_0") for chain in "ab"}
            for step, chain in itertools.product("12", "ab"):
                values[chain] = tf.identity(values[chain], name=f"{chain}_{step}")
        op_graph = read(graph)
        order = [op_graph.names[i] for i in op_graph.order]
        self.assertSequenceEqual(order, ["a_0", "a_1", "a_2", "b_0", "b_1", "b_2"])

    @parameterized.parameters(
        ("v1_ref_variables", "VariableV2", "ApplyAdam"),
        ("resource_variables", "VarHandleOp", "ResourceApplyAdam"),
        ("while_loop_v2", "TensorListReserve", "While"),
        ("tf_data_iterators", "IteratorV2", "IteratorGetNext"),
        ("lookup_table_and_strings", "HashTableV2", "LookupTableFindV2"),
    )
    def test_finds_handle_edges(self, name, producer_type, consumer_type):
        graph = read(graphs.share_graph(name).graph)
        found = {
            (graph.type_of(p), graph.type_of(c))
            for p, c in zip(
                graph.edge_producer[graph.edge_is_handle],
                graph.edge_consumer[graph.edge_is_handle],
                strict=True,
            )
        }
        self.assertIn((producer_type, consumer_type), found)

    def test_references_that_are_only_read_are_values(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [2], use_resource=False)
            read_too = tf.add(variable, 1.0, name="add")
            tf1.assign_add(variable, read_too, name="update")
        op_graph = read(graph)
        handles = {
            (op_graph.names[p], op_graph.names[c])
            for p, c, handle in zip(
                op_graph.edge_producer, op_graph.edge_consumer, op_graph.edge_is_handle, strict=True
            )
            if handle
        }
        self.assertContainsSubset([("v", "update"), ("v", "v/Assign")], handles)
        self.assertNoCommonElements([("v", "add"), ("v", "v/read"), ("add", "update")], handles)

    def test_marks_unknown_sizes(self):
        with tf.Graph().as_default() as graph:
            tf1.placeholder(tf.float32, [None, 3], name="partly")
            tf1.placeholder(tf.float32, None, name="rank")
            tf1.placeholder(tf.string, [2], name="text")
            tf1.placeholder(tf.float64, [], name="scalar")
            tf1.placeholder(tf.bool, [0, 5], name="nothing")
            tf1.placeholder(tf.bfloat16, [5], name="short")
        op_graph = read(graph)
        columns = {
            name: (op_graph.tensor_shapes[i], op_graph.tensor_bytes[i])
            for i, name in enumerate(op_graph.names)
        }
        self.assertEqual(
            columns,
            {
                "partly": ((-1, 3), -1),
                "rank": (None, -1),
                "text": ((2,), -1),
                "scalar": ((), 8),
                "nothing": ((0, 5), 0),
                "short": ((5,), 10),
            },
        )

    @parameterized.parameters(*graphs.FACTORIES)
    def test_needed_equals_the_subgraph_that_tensorflow_extracts(self, name):
        made = graphs.share_graph(name)
        operations = [fetch.partition(":")[0] for fetch in made.fetches]
        graph_def = made.graph.as_graph_def()
        for node in graph_def.node:
            # TensorFlow would also extract colocated operations.
            node.attr.pop("_class", None)
        extracted = tf1.graph_util.extract_sub_graph(graph_def, operations)
        self.assertCountEqual(
            find_needed_names(read(made.graph, made.fetches)),
            [node.name for node in extracted.node],
        )

    def test_needed_ends_at_fed_tensors(self):
        with tf.Graph().as_default() as graph:
            before = tf.ones([], name="before")
            first, second = tf.split(tf.stack([before, before]), 2, name="split")
            after = tf.add(first, second, name="after")
            with tf.control_dependencies([tf.identity(before, name="waited_for")]):
                tf.identity(after, name="end")
        whole = set(read(graph).names)
        self.assertEqual(find_needed_names(read(graph, ["end"])), whole)
        self.assertEqual(find_needed_names(read(graph, ["end"], ["split:0"])), whole)
        self.assertEqual(
            find_needed_names(read(graph, ["end:0"], ["split:0", "split:1"])),
            {"before", "waited_for", "after", "end"},
        )
        self.assertEqual(find_needed_names(read(graph, ["after:0"], ["after"])), set())
        self.assertEqual(
            find_needed_names(read(graph, ["after"], ["after:0"])), whole - {"waited_for", "end"}
        )

    def test_without_fetches_everything_is_needed(self):
        made = graphs.matmul_chain()
        self.assertTrue(read(made.graph).needed.all())
        fed = read(made.graph, feeds=["result:0"])
        self.assertTrue(fed.needed.all())
        self.assertEqual(np.flatnonzero(fed.fed).tolist(), [fed.tensor_index("result:0")])

    @parameterized.parameters(
        (["lost"], [], "lost"),
        (["result:1"], [], "result:1"),
        (["result:x"], ["result:0"], "result:x"),
        ([""], [], "''"),
        (["^result"], [], "^result"),
        (["result"], ["lost:0"], "lost:0"),
        (["result"], ["result:7"], "result:7"),
        (["result"], ["result:²"], "result:²"),
    )
    def test_error_names_missing_fetches_and_feeds(self, fetches, feeds, culprit):
        graph = graphs.matmul_chain().graph
        with self.assertRaisesRegex(GraphError, culprit.replace("^", r"\^")):
            read(graph, fetches, feeds)

    @parameterized.parameters(*graphs.FACTORIES)
    def test_reading_does_not_change_the_graph(self, name):
        made = graphs.share_graph(name)
        graph_def = made.graph.as_graph_def()
        before = graph_def.SerializeToString(deterministic=True)
        op_graph = OpGraph.from_graph_def(graph_def, made.fetches, tuple(made.feeds))
        self.assertIs(op_graph.graph_def, graph_def)
        self.assertEqual(graph_def.SerializeToString(deterministic=True), before)

    def test_garbage_collection_resumes_after_an_error(self):
        with self.assertRaises(GraphError):
            OpGraph.from_graph_def(tf1.GraphDef())
        self.assertTrue(gc.isenabled())

    def test_accepts_values_that_are_invalid_outside_the_step(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 2], name="x")
            tf.multiply(x, 2.0, name="step")
            tf.multiply(x[5], 2.0, name="of_longer_batches")
        graph_def, values = graph.as_graph_def(), {"x:0": np.zeros([3, 2], np.float32)}
        read = OpGraph.from_graph_def(graph_def, ["step"], values)
        self.assertEqual(read.tensor_shapes[read.tensor_index("step:0")], (3, 2))
        self.assertEqual(read.tensor_shapes[read.tensor_index("of_longer_batches:0")], (2,))
        self.assertEqual(read.tensor_bytes[read.tensor_index("step:0")], 24)
        later = OpGraph.from_graph_def(graph_def).restrict(["step"], ["x:0"])
        self.assertEqual(later.with_fed_values(values).tensor_shapes, read.tensor_shapes)
        with self.assertRaisesRegex(GraphError, "slice index 5 of dimension 0 out of bounds"):
            OpGraph.from_graph_def(graph_def, ["of_longer_batches"], values)

    def test_accepts_colocation_with_operations_outside_the_step(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 2], name="x")
            longer = tf.multiply(x[5], 2.0, name="of_longer_batches")
            with graph.colocate_with(longer.op):
                tf.multiply(x, 2.0, name="step")
        graph_def, values = graph.as_graph_def(), {"x:0": np.zeros([3, 2], np.float32)}
        read = OpGraph.from_graph_def(graph_def, ["step"], values)
        self.assertEqual(read.tensor_shapes[read.tensor_index("step:0")], (3, 2))
        step = read.graph_def.node[read.index["step"]]
        self.assertEqual(list(step.attr["_class"].list.s), [b"loc:@of_longer_batches"])


if __name__ == "__main__":
    tf.test.main()
