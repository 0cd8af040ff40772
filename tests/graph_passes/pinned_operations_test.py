from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes.op_graph import OpGraph
from graph_passes.pinned_operations import find_feeds, find_pinned
from tests import graph_parts, graphs

tf1 = tf.compat.v1


def names_where(mask: np.ndarray, graph: OpGraph) -> set[str]:
    return {graph.names[i] for i in np.flatnonzero(mask)}


def find_pinned_names(graph: tf.Graph) -> set[str]:
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    return names_where(find_pinned(op_graph), op_graph)


class PinnedOperationsTest(tf.test.TestCase, parameterized.TestCase):
    def test_arithmetic_is_not_pinned(self):
        for name in ("v1_ref_variables", "lstm", "small_convnet", "cond_v1", "while_loop_v1"):
            self.assertEmpty(find_pinned_names(graphs.share_graph(name).graph), name)

    @parameterized.parameters("/cpu:0", "/device:GPU:1", "/job:ps")
    def test_operations_on_a_device_are_pinned(self, device):
        with tf.Graph().as_default() as graph:
            with tf.device(device):
                tf.constant(1.0, name="put")
            tf.constant(1.0, name="free")
        self.assertEqual(find_pinned_names(graph), {"put"})

    def test_operations_on_strings_are_pinned(self):
        with tf.Graph().as_default() as graph:
            text = tf.constant("text", name="text")
            number = tf.strings.length(text, name="length")
            tf.add(number, 1, name="free")
            tf.strings.as_string(number, name="written")
        self.assertEqual(find_pinned_names(graph), {"text", "length", "written"})

    def test_saver_and_summaries_are_pinned_but_not_their_inputs(self):
        made = graphs.saver_and_summaries()
        names = find_pinned_names(made.graph)
        for op in made.graph.get_operations():
            if "Summary" in op.type or op.type in ("SaveV2", "RestoreV2", "ShardedFilename"):
                self.assertIn(op.name, names)
        self.assertNoCommonElements(["loss", "hidden/weights", "hidden/MatMul"], names)

    def test_iterators_and_data_sets_are_pinned(self):
        made = graphs.tf_data_iterators()
        names = find_pinned_names(made.graph)
        for op in made.graph.get_operations():
            if "Dataset" in op.type or "Iterator" in op.type:
                self.assertIn(op.name, names)
        self.assertNotIn("logits/MatMul", names)

    def test_tables_are_pinned(self):
        made = graphs.lookup_table_and_strings()
        names = find_pinned_names(made.graph)
        for op in made.graph.get_operations():
            if "Table" in op.type or "String" in op.type:
                self.assertIn(op.name, names)
        self.assertNotIn("logits/MatMul", names)

    def test_queues_and_readers_are_pinned(self):
        with tf.Graph().as_default() as graph:
            queue = tf1.FIFOQueue(3, [tf.float32], name="queue")
            queue.enqueue([1.0], name="put")
            queue.dequeue(name="take")
            tf1.TextLineReader(name="reader")
        self.assertContainsSubset(["queue", "put", "take", "reader"], find_pinned_names(graph))

    def test_assertions_prints_and_python_functions_are_pinned(self):
        with tf.Graph().as_default() as graph:
            value = tf.constant(1.0, name="value")
            tf1.Print(value, [value], name="print")
            tf.numpy_function(lambda x: x, [value], tf.float32, name="python")
            tf.raw_ops.Assert(condition=True, data=[value], name="assert")
        self.assertEqual(find_pinned_names(graph), {"print", "python", "assert"})

    def test_calls_of_functions_with_pinned_types_are_pinned(self):
        @tf.function(autograph=False)
        def prints(value):
            tf.print(value)
            return value + 1.0

        @tf.function(autograph=False)
        def calls(value):
            return prints(value) * 2.0

        with tf.Graph().as_default() as graph:
            value = tf.constant(1.0)
            calls(value)
            tf.function(lambda value: value + 2.0)(value)
        found = find_pinned_names(graph)
        for op in graph.get_operations():
            if "PartitionedCall" in op.type:
                function = op.get_attr("f").name
                self.assertEqual(op.name in found, "calls" in function, function)
        self.assertLen(found, 1)

    def test_functional_conditional_with_an_assertion_is_pinned(self):
        def fails():
            tf.raw_ops.Assert(condition=False, data=["too large"])
            return 0.0

        with tf.Graph().as_default() as graph, graph_parts.control_flow(v2=True):
            value = tf.constant(1.0)
            checked = tf1.cond(value < 2.0, lambda: value, fails, name="checked")
            free = tf1.cond(value < 2.0, lambda: value, lambda: -value, name="free")
            tf.add(checked, free)
        names = {op.name for op in graph.get_operations() if op.type in ("If", "StatelessIf")}
        self.assertEqual(names, {"checked", "free"})
        self.assertEqual(find_pinned_names(graph) & names, {"checked"})

    @parameterized.parameters(
        ("_XlaCompile", {"b": True}, True),
        ("_XlaCompile", {"b": False}, False),
        ("_xla_compile_id", {"i": 3}, True),
        ("_other", {"b": True}, False),
    )
    def test_operations_marked_for_xla_are_pinned(self, attribute, value, is_pinned):
        with tf.Graph().as_default() as graph:
            tf.constant(1.0, name="marked").op._set_attr(attribute, tf1.AttrValue(**value))
        self.assertEqual(find_pinned_names(graph), {"marked"} if is_pinned else set())


class FeedsTest(tf.test.TestCase):
    def test_placeholders_and_fed_tensors_are_feeds(self):
        with tf.Graph().as_default() as graph:
            placed = tf1.placeholder(tf.float32, [], name="placed")
            default = tf1.placeholder_with_default(1.0, [], name="default")
            given = tf.add(placed, default, name="given")
            tf.negative(given, name="computed")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["computed"], ["given:0"])
        self.assertEqual(
            names_where(find_feeds(op_graph), op_graph), {"placed", "default", "given"}
        )
        self.assertEmpty(find_pinned_names(graph))


if __name__ == "__main__":
    tf.test.main()
