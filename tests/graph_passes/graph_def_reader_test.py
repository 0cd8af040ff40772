"""Tests of reading invalid graphs: the error names the culprit in one line."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from graph_passes import graph_def_reader as reader
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.tensors import read_tensors

tf1 = tf.compat.v1


def small_graph_def() -> tf1.GraphDef:
    """Builds a -> b -> c and a -> c."""
    with tf.Graph().as_default() as graph:
        a = tf.constant([1.0], name="a")
        tf.add(a, tf.identity(a, name="b"), name="c")
    return graph.as_graph_def()


def function_graph_def() -> tf1.GraphDef:
    with tf.Graph().as_default() as graph:
        double = tf.function(lambda value: tf.tanh(value) * 2.0)
        tf.identity(double(tf.constant(1.0)), name="result")
    return graph.as_graph_def()


def node(graph_def: tf1.GraphDef, name: str) -> tf1.NodeDef:
    return next(node for node in graph_def.node if node.name == name)


def set_input(name: str, number: int, text: str) -> Callable[[tf1.GraphDef], None]:
    def change(graph_def: tf1.GraphDef) -> None:
        node(graph_def, name).input[number] = text

    return change


def add_copy(graph_def: tf1.GraphDef) -> None:
    graph_def.node.add().CopyFrom(node(graph_def, "b"))


def rename_type(graph_def: tf1.GraphDef) -> None:
    node(graph_def, "b").op = "Frobnicate"


def drop_type_attribute(graph_def: tf1.GraphDef) -> None:
    del node(graph_def, "b").attr["T"]


def collocate_with_lost(graph_def: tf1.GraphDef) -> None:
    node(graph_def, "b").attr["_class"].list.s.append(b"loc:@lost")


class BadGraphsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (tf1.GraphDef.Clear, ["empty"]),
        (add_copy, ["two operations", "'b'"]),
        (rename_type, ["'b'", "'Frobnicate'", tf.__version__]),
        (drop_type_attribute, ["refuses", "b"]),
        (collocate_with_lost, ["refuses", "'b'", "'lost'"]),
        (set_input("c", 1, "lost"), ["'c'", "'lost'"]),
        (set_input("c", 1, "^lost"), ["'c'", "'^lost'"]),
        (set_input("c", 1, "b:-1"), ["'c'", "'b:-1'"]),
        (set_input("c", 1, "b:1"), ["'c'", "output 1"]),
        (set_input("c", 1, f"b:{10**30}"), ["'c'", str(10**30)]),
        (set_input("b", 0, "c"), ["cycle", "'b' -> 'c' -> 'b'|'c' -> 'b' -> 'c'"]),
        (set_input("b", 0, "b"), ["cycle", "'b' -> 'b'"]),
    )
    def test_error_names_the_culprit_in_one_line(self, change, culprits):
        graph_def = small_graph_def()
        change(graph_def)
        with self.assertRaises(GraphError) as caught:
            OpGraph.from_graph_def(graph_def)
        for culprit in culprits:
            self.assertRegex(str(caught.exception), culprit.replace("^", r"\^"))
        self.assertNotIn("\n", str(caught.exception))

    def test_error_cuts_long_cycles(self):
        with tf.Graph().as_default() as graph:
            value = tf.constant(1.0, name="start")
            value = first = tf.identity(value, name="link_0")
            for number in range(1, 20):
                value = tf.identity(value, name=f"link_{number}")
            tf.identity(first, name="beside")
        graph_def = graph.as_graph_def()
        node(graph_def, "link_0").input[0] = "link_19"
        with self.assertRaises(GraphError) as caught:
            OpGraph.from_graph_def(graph_def)
        self.assertRegex(str(caught.exception), r"cycle through 'link_\d+' -> .*\.\.\. -> 'link_")
        self.assertLess(len(str(caught.exception)), 100)

    def test_finds_cycles_through_control_edges(self):
        graph_def = small_graph_def()
        node(graph_def, "b").input.append("^c")
        with self.assertRaisesRegex(GraphError, "cycle"):
            OpGraph.from_graph_def(graph_def)

    def test_accepts_v1_loops(self):
        with tf.Graph().as_default() as graph:
            tf1.disable_control_flow_v2()
            try:
                tf1.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
            finally:
                tf1.enable_control_flow_v2()
        op_graph = OpGraph.from_graph_def(graph.as_graph_def())
        self.assertIn("NextIteration", op_graph.type_names)

    @parameterized.parameters("/job:worker/gpu:zero", "/gpu:-1", "/device:GPU", "/gpu:0/cpu:0")
    def test_error_names_invalid_device_and_operation(self, device):
        graph_def = small_graph_def()
        node(graph_def, "b").device = device
        with self.assertRaisesRegex(GraphError, f"operation 'b' is on '{device}', which is no dev"):
            OpGraph.from_graph_def(graph_def)

    def test_error_names_invalid_device_and_function(self):
        graph_def = function_graph_def()
        [function] = graph_def.library.function
        function.node_def[0].device = "/job:worker/gpu:zero"
        with self.assertRaisesRegex(GraphError, f"of the function '{function.signature.name}' is"):
            OpGraph.from_graph_def(graph_def)

    def test_error_names_unknown_type_and_function(self):
        graph_def = function_graph_def()
        function = graph_def.library.function[0]
        next(n for n in function.node_def if n.op == "Tanh").op = "Frobnicate"
        with self.assertRaisesRegex(
            GraphError, f"'Tanh' of the function '{function.signature.name}' .*'Frobnicate'"
        ):
            OpGraph.from_graph_def(graph_def)

    def test_accepts_functions_as_operation_types(self):
        graph_def = function_graph_def()
        reader.check_operation_types(graph_def)
        call = next(n for n in graph_def.node if n.op.endswith("PartitionedCall"))
        call.op = graph_def.library.function[0].signature.name
        reader.check_operation_types(graph_def)


class HandleEdgesTest(tf.test.TestCase):
    def test_finds_each_reference_of_a_list(self):
        # RefSelect reads references beside an index that is a plain value.
        with tf.Graph().as_default() as graph:
            variables = [tf1.get_variable(n, [2], use_resource=False) for n in ("v", "w")]
            tf.raw_ops.RefSelect(index=0, inputs=[v._variable for v in variables], name="select")
        graph_def = graph.as_graph_def()
        names = [n.name for n in graph_def.node]
        edges = reader.read_edges(graph_def, {name: i for i, name in enumerate(names)})
        tensors = read_tensors(graph_def)
        handles = reader.find_handle_edges(
            graph_def, tensors, tensors.output_start[edges.producers] + edges.ports, edges.consumers
        )
        of_select = edges.consumers == names.index("select")
        self.assertEqual(handles[of_select].tolist(), [False, True, True])
        self.assertEqual(np.count_nonzero(tensors.is_reference), 5)


if __name__ == "__main__":
    tf.test.main()
