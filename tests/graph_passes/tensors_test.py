"""Tests of inferred shapes, against TensorFlow's shapes of the same graph with known sizes."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from absl.testing import parameterized
from tensorflow.python.framework import function

from graph_passes.errors import GraphError
from graph_passes.flattened_graph import Shape
from graph_passes.op_graph import OpGraph
from tests import graph_parts
from tests.function_parts import add_call, add_conditional, add_function, graph_with_call

tf1 = tf.compat.v1

BATCH = 8


def conditional(x: tf.Tensor) -> tf.Tensor:
    return tf1.cond(tf.reduce_sum(x) > 0, lambda: x * 3.0, lambda: tf.nn.relu(x) + 1.0)


def case(x: tf.Tensor) -> tf.Tensor:
    branches = [lambda: x * 3.0, lambda: x + 1.0, lambda: tf.exp(x)]
    return tf.switch_case(tf.cast(tf.reduce_sum(x), tf.int32), branches)


def loop(x: tf.Tensor) -> tf.Tensor:
    return tf1.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.tanh(a) * 2.0), [0, x])[1]


def conditional_in_loop(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, a: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return i + 1, tf1.cond(i > 1, lambda: a * 2.0, lambda: a + 1.0)

    return tf1.while_loop(lambda i, a: i < 3, body, [0, x])[1]


def loop_in_conditional(x: tf.Tensor) -> tf.Tensor:
    return tf1.cond(tf.reduce_sum(x) > 0, lambda: loop(x), lambda: x)


def call_traced_function(x: tf.Tensor) -> tf.Tensor:
    return tf.function(lambda z: tf.exp(z))(x)


def call_defun(x: tf.Tensor) -> tf.Tensor:
    @function.Defun(tf.float32)
    def double(z: tf.Tensor) -> tf.Tensor:
        return z * 2.0

    @function.Defun(tf.float32)
    def quadruple(z: tf.Tensor) -> tf.Tensor:
        return tf.reshape(double(double(z)), tf.shape(z))

    y = quadruple(x)
    y.set_shape(x.shape)
    return y


def sizes_from_shapes(x: tf.Tensor) -> tf.Tensor:
    rows = tf.shape(x)[0]
    return tf.reshape(tf.tile(x, [2, 1]), tf.stack([rows, 2, -1]))


def scan(x: tf.Tensor) -> tf.Tensor:
    return tf.scan(lambda a, z: a + z, tf.transpose(x), initializer=tf.zeros([tf.shape(x)[0]]))


def recurrent(x: tf.Tensor) -> tf.Tensor:
    weights = tf.ones([8, 4])

    def body(i, hidden, outputs):
        hidden = tf.tanh(tf.matmul(tf.concat([x, hidden], 1), weights))
        return i + 1, hidden, outputs.write(i, hidden)

    outputs = tf.TensorArray(tf.float32, 5)
    start = [0, tf.zeros([tf.shape(x)[0], 4]), outputs]
    return tf1.while_loop(lambda i, *_: i < 5, body, start)[2].stack()


def gradients(x: tf.Tensor) -> tf.Tensor:
    return tf1.gradients(tf.reduce_sum(tf.square(recurrent(x))), [x])[0]


def gradients_of_map(x: tf.Tensor) -> tf.Tensor:
    return tf1.gradients(tf.map_fn(lambda row: tf.reduce_sum(row**2), x), [x])[0]


CONTROL_FLOW = (conditional, case, loop, conditional_in_loop, loop_in_conditional)
CALLS = (call_traced_function, call_defun, sizes_from_shapes)
ARRAYS = (scan, recurrent, gradients, gradients_of_map)


def build_graph(build, batch: int | None, *, v2: bool) -> tf.Graph:
    with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=v2):
        x = tf1.placeholder(tf.float32, [batch, 4], name="x")
        tf.exp(build(x), name="y")
    return graph


def read_fed(graph: tf.Graph, fetch: str = "y") -> OpGraph:
    return OpGraph.from_graph_def(
        graph.as_graph_def(), [fetch], {"x:0": np.zeros([BATCH, 4], np.float32)}
    )


class FedShapesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        *((build, v2) for build in (*CONTROL_FLOW, *ARRAYS) for v2 in (False, True)),
        *((build, False) for build in CALLS),
    )
    def test_shapes_follow_from_fed_shapes(self, build, v2):
        graph = read_fed(build_graph(build, None, v2=v2))
        static = build_graph(build, BATCH, v2=v2)
        self.assertEqual(
            graph.tensor_shapes[graph.tensor_index("y")],
            tuple(static.get_tensor_by_name("y:0").shape.as_list()),
        )
        self.assertEqual([s for s in graph.tensor_shapes if s is None or -1 in s], [])
        known = 0
        for operation in static.get_operations():
            i = graph.index.get(operation.name)
            # With known sizes TensorFlow builds some gradients of other operations.
            if i is None or graph.type_of(i) != operation.type:
                continue
            for tensor in operation.outputs:
                if tensor.shape.is_fully_defined():
                    shape = graph.tensor_shapes[graph.tensor_index(tensor.name)]
                    self.assertEqual(shape, tuple(tensor.shape.as_list()), tensor.name)
                    known += 1
        self.assertGreater(known, 2)

    @parameterized.parameters(*CONTROL_FLOW, *CALLS, *ARRAYS)
    def test_infers_all_shapes_from_known_sizes(self, build):
        graph = OpGraph.from_graph_def(build_graph(build, BATCH, v2=False).as_graph_def(), ["y"])
        self.assertEqual([s for s in graph.tensor_shapes if s is None or -1 in s], [])

    def test_shapes_follow_from_fed_values(self):
        with tf.Graph().as_default() as graph:
            rows = tf1.placeholder(tf.int32, [], name="rows")
            tf.zeros(tf.stack([rows, 4]), name="y")
        feeds = {"rows:0": np.int32(7)}
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (7, 4))

    def test_shapes_follow_from_feeds_inside_the_graph(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            tf.exp(tf.boolean_mask(x, x[:, 0] > 0), name="kept")
            tf.tanh(graph.get_tensor_by_name("kept:0"), name="y")
        feeds = {"kept:0": np.zeros([3, 4], np.float32)}
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (3, 4))
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("kept")], (3, 4))

    def test_rejects_invalid_fed_values(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, None], name="x")
            tf.matmul(x, tf.ones([4, 2]), name="y")
        with self.assertRaisesRegex(GraphError, "with the values that are fed, TensorFlow refuses"):
            OpGraph.from_graph_def(
                graph.as_graph_def(), ["y"], {"x:0": np.zeros([3, 5], np.float32)}
            )

    def test_fed_references_do_not_change_shapes(self):
        with tf.Graph().as_default() as graph:
            v = tf1.get_variable("v", [2], use_resource=False)
            tf1.assign_add(v, [1.0, 1.0], name="y")
        feeds = {"v:0": np.zeros([2], np.float32)}
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], feeds)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (2,))

    def test_selections_have_the_size_of_their_input(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            tf.boolean_mask(x, x[:, 0] > 0, name="rows")
            tf.where(x > 0, name="where")
            tf.unique(x[:, 0], name="unique")
            tf.unique_with_counts(x[:, 0], name="counted")
        op_graph = read_fed(graph, "x")

        def shape(name: str) -> tuple[int, ...] | None:
            return op_graph.tensor_shapes[op_graph.tensor_index(name)]

        self.assertEqual(shape("rows/GatherV2:0"), (BATCH, 4))
        self.assertEqual(shape("where:0"), (BATCH * 4, 2))
        self.assertEqual(shape("unique:0"), (BATCH,))
        self.assertEqual(shape("counted:2"), (BATCH,))

    def test_selections_of_a_contradicting_size_stay_unknown(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            tf.reshape(tf.boolean_mask(x, x[:, 0] > 0, name="rows"), [2, 2], name="y")
        op_graph = read_fed(graph)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (2, 2))
        rows = op_graph.tensor_shapes[op_graph.tensor_index("rows/GatherV2")]
        self.assertEqual(rows, (-1, 4))


class PlaceholderWithDefaultTest(tf.test.TestCase, parameterized.TestCase):
    """Tests of shapes that depend on the defaults of placeholders."""

    def setUp(self):
        super().setUp()
        with tf.Graph().as_default() as graph:
            rows = tf1.placeholder_with_default(32, [], name="rows")
            x = tf1.placeholder_with_default(tf.ones([8, 4]), [None, 4], name="x")
            tf.concat([tf.zeros([rows, 4]), x], 0, name="y")
        self.graph_def = graph.as_graph_def()

    def shape(self, feeds) -> Shape:
        op_graph = OpGraph.from_graph_def(self.graph_def, ["y"], feeds)
        return op_graph.tensor_shapes[op_graph.tensor_index("y")]

    def test_shapes_follow_from_defaults_that_are_not_fed(self):
        self.assertEqual(self.shape({}), (40, 4))
        self.assertEqual(self.shape({"rows:0": np.array(16, np.int32)}), (24, 4))
        self.assertEqual(self.shape({"x:0": np.zeros([3, 4], np.float32)}), (35, 4))

    def test_defaults_are_unknown_without_fed_values(self):
        self.assertEqual(self.shape(()), (-1, 4))
        self.assertEqual(self.shape(["x:0"]), (-1, 4))


class ChangingSizesTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(False, True)
    def test_sizes_that_a_loop_changes_are_unknown(self, v2):
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=v2):
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            _, grown = tf1.while_loop(
                lambda i, a: i < 3,
                lambda i, a: (i + 1, tf.concat([a, x], 0)),
                [0, x],
                shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 4])],
            )
            tf.exp(grown, name="y")
        op_graph = read_fed(graph)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (-1, 4))

    @parameterized.parameters(False, True)
    def test_sizes_that_differ_between_branches_are_unknown(self, v2):
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=v2):
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            y = tf1.cond(tf.reduce_sum(x) > 0, lambda: x, lambda: tf.concat([x, x], 0))
            tf.exp(y, name="y")
        op_graph = read_fed(graph)
        self.assertEqual(op_graph.tensor_shapes[op_graph.tensor_index("y")], (-1, 4))

    def test_recursive_functions_are_not_flattened(self):
        graph_def = graph_with_call("f", op="")
        add_conditional(add_function(graph_def, "f"), ["g", "h"])
        add_call(add_function(graph_def, "g"), "f")
        add_function(graph_def, "h").ret["y"] = "x"
        op_graph = OpGraph.from_graph_def(graph_def, ["call"])
        self.assertIsNone(op_graph.tensor_shapes[op_graph.tensor_index("call")])


if __name__ == "__main__":
    tf.test.main()
