from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.function_body import Argument, FunctionBodies
from tests import graph_parts

tf1 = tf.compat.v1


def graph_of_call(function: tf.types.experimental.PolymorphicFunction, *inputs: tf.Tensor):
    """Builds a graph that calls a function, and returns it with the function's name."""
    with tf.Graph().as_default() as graph:
        function(*(tf1.placeholder(value.dtype, value.shape) for value in inputs))
    graph_def = graph.as_graph_def()
    [call] = [node for node in graph_def.node if node.op.endswith("PartitionedCall")]
    return graph_def, call.attr["f"].func.name


class FunctionBodyTest(tf.test.TestCase):
    def test_shapes_follow_from_the_call(self):
        @tf.function(input_signature=[tf.TensorSpec([None, None])] * 2)
        def product(a, b):
            return tf.matmul(a, b)

        graph_def, name = graph_of_call(product, tf.zeros([2, 3]), tf.zeros([3, 5]))
        bodies = FunctionBodies(graph_def)
        for rows in (2, 7):
            body = bodies.body(name, [Argument((rows, 3)), Argument((3, 5))]).graph
            [product_at] = body.has_type(["MatMul"]).nonzero()[0]
            self.assertEqual(body.tensor_shapes[body.output_start[product_at]], (rows, 5))

    def test_arguments_may_have_no_shape(self):
        @tf.function(input_signature=[tf.TensorSpec(None)])
        def twice(a):
            return a + a

        graph_def, name = graph_of_call(twice, tf.zeros([2]))
        body = FunctionBodies(graph_def).body(name, [Argument(None)]).graph
        self.assertIsNone(body.tensor_shapes[0])
        body = FunctionBodies(graph_def).body(name, [Argument((-1, 4))]).graph
        self.assertEqual(body.tensor_shapes[0], (-1, 4))

    def test_variables_have_shapes_in_nested_functions(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [4, 6], use_resource=True)

            @tf.function
            def inner():
                return tf.reduce_sum(variable)

            @tf.function
            def outer():
                return inner() + 1.0

            outer()
        graph_def = graph.as_graph_def()
        bodies = FunctionBodies(graph_def)
        [call] = [node for node in graph_def.node if node.op.endswith("PartitionedCall")]
        body = bodies.body(
            call.attr["f"].func.name, [Argument((4, 6), tf.float32.as_datatype_enum)]
        ).graph
        self.assertIn("VarHandleOp", body.type_names)
        [inner_call] = [n for n in body.graph_def.node if n.op.endswith("PartitionedCall")]
        self.assertIn(inner_call.attr["f"].func.name, bodies)

    def test_distinguishes_outputs_in_lists(self):
        @tf.function
        def second_half(a):
            _, second = tf.split(a, 2)
            return tf.exp(second)

        graph_def, name = graph_of_call(second_half, tf.zeros([4]))
        body = FunctionBodies(graph_def).body(name, [Argument((4,))]).graph
        [exp] = body.has_type(["Exp"]).nonzero()[0]
        [split] = body.has_type(["Split"]).nonzero()[0]
        self.assertEqual(body.input_tensors[exp], [int(body.output_start[split]) + 1])

    def test_unused_operations_are_not_needed(self):
        with tf.Graph().as_default() as graph:
            variable = tf1.get_variable("v", [], use_resource=True)

            @tf.function
            def partly(a):
                tf.exp(a, name="unused")
                variable.assign_add(a, name="state")
                return tf.sqrt(a, name="used")

            partly(tf1.placeholder(tf.float32, []))
        graph_def = graph.as_graph_def()
        [call] = [node for node in graph_def.node if node.op.endswith("PartitionedCall")]
        arguments = [Argument(()), Argument((), tf.float32.as_datatype_enum)]
        body = FunctionBodies(graph_def).body(call.attr["f"].func.name, arguments).graph
        needed = {op for op, needs in zip(body.names, body.needed, strict=True) if needs}
        self.assertContainsSubset(["used", "state"], needed)
        self.assertNotIn("unused", needed)

    def test_finds_arguments_and_results(self):
        graph_def, name = graph_of_call(
            tf.function(lambda a, b: (b, a + b)), tf.constant(1), tf.constant(2)
        )
        body = FunctionBodies(graph_def).body(name, [Argument(()), Argument((), constant=2)])
        first, second = body.arguments
        types = [body.graph.type_of(int(body.graph.tensor_producer[t])) for t in body.results]
        self.assertEqual(types, ["Identity", "Identity"])
        given = [body.graph.type_of(int(body.graph.tensor_producer[t])) for t in (first, second)]
        self.assertEqual(given, ["Placeholder", "Const"])

    def test_finds_loop_invariant_arguments(self):
        with graph_parts.new_graph() as graph, graph_parts.control_flow(v2=True):
            limit = tf1.placeholder(tf.int32, [])
            tf1.while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, a * 2.0), [0, 1.0])
        graph_def = graph.as_graph_def()
        [loop] = [node for node in graph_def.node if node.op.endswith("While")]
        bodies = FunctionBodies(graph_def)
        # The arguments are TensorFlow's counter and its limit, i, a, and the captured limit.
        stay = bodies.find_invariant_arguments(loop.attr["body"].func.name)
        self.assertEqual(stay, [False, True, False, False, True])
        self.assertEqual(bodies.find_invariant_arguments("gone"), [])

    def test_error_names_missing_functions(self):
        with self.assertRaisesRegex(GraphError, "no function 'gone'"):
            FunctionBodies(tf1.GraphDef()).body("gone", [])


if __name__ == "__main__":
    tf.test.main()
