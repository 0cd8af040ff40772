"""Tests of the pass that sets the order in which devices are handed operations."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.operation_order import OrderOperations, find_orderable
from tests.graph_parts import new_graph

tf1 = tf.compat.v1


def build() -> tf1.GraphDef:
    """Builds two branches that join in a step, beside an operation that reads one of them."""
    with new_graph() as graph:
        x = tf1.placeholder(tf.float32, [3], name="x")
        variable = tf1.get_variable("v", initializer=[1.0, 2.0, 3.0], use_resource=False)
        left = tf.square(tf.sin(x, name="sin"), name="left")
        right = tf.exp(x * variable, name="right")
        step = tf.add(left, right, name="sum")
        tf1.assign(variable, step, name="step")
        tf.negative(right, name="watched")
        tf1.global_variables_initializer()
    return graph.as_graph_def()


def read(graph_def: tf1.GraphDef, *fetches: str) -> OpGraph:
    return OpGraph.from_graph_def(graph_def).restrict(list(fetches))


def find_names(graph: OpGraph) -> set[str]:
    return {graph.names[i] for i in np.flatnonzero(find_orderable(graph)).tolist()}


class FindOrderableTest(tf.test.TestCase):
    def test_what_others_depend_on_is_left_alone(self):
        # `watched` depends on `right` and what makes it.
        self.assertEqual(find_names(read(build(), "step")), {"sin", "left", "sum", "step"})
        both = find_names(read(build(), "step", "watched"))
        self.assertEqual(both, {"sin", "left", "sum", "step", "right", "mul", "v/read", "watched"})

    def test_what_gradients_leave_behind_does_not_count(self):
        with new_graph() as graph:
            x = tf1.placeholder(tf.float32, [3], name="x")
            with tf1.name_scope("gradients"):
                tf.zeros_like(tf.square(x, name="square"))
            tf.add(graph.get_tensor_by_name("gradients/square:0"), 1.0, name="step")
        names = find_names(read(graph.as_graph_def(), "step"))
        self.assertEqual(names, {"gradients/square", "step"})

    def test_what_may_not_run_is_left_alone(self):
        with new_graph() as graph:
            tf1.disable_control_flow_v2()
            x = tf1.placeholder(tf.float32, [], name="x")
            chosen = tf1.cond(x > 0, lambda: tf.sin(x), lambda: tf.cos(x))
            tf.add(tf.exp(x, name="exp"), chosen, name="step")
            tf1.enable_control_flow_v2()
        names = find_names(read(graph.as_graph_def(), "step"))
        self.assertIn("exp", names)
        self.assertNotIn("step", names)
        self.assertFalse({name for name in names if "cond" in name and "pred" not in name})

    def test_a_step_that_waits_for_another_is_refused(self):
        with new_graph() as graph:
            queue = tf1.FIFOQueue(4, tf.float32, [[]], name="queue")
            tf.square(queue.dequeue(name="get"), name="step")
        with self.assertRaisesRegex(
            GraphError, "the step waits for others in .queue., a FIFOQueue"
        ):
            find_orderable(read(graph.as_graph_def(), "step"))


class OrderOperationsTest(tf.test.TestCase):
    def test_adds_control_edges_and_nothing_else(self):
        before = build()
        after = OrderOperations([("left", "right"), ("left", "mul")]).run(before)
        inputs = {node.name: list(node.input) for node in after.node}
        self.assertEqual(inputs["right"], ["mul", "^left"])
        self.assertEqual(inputs["mul"][-1], "^left")
        for node in after.node:
            kept = [each for each in node.input if each != "^left"]
            del node.input[:]
            node.input.extend(kept)
        self.assertEqual(after, before)
        self.assertIs(OrderOperations([]).run(before), before)

    def test_the_ordered_graph_computes_the_same(self):
        values = []
        for edges in ([], [("left", "right")], [("right", "sin")]):
            with tf.Graph().as_default() as graph:
                tf.import_graph_def(OrderOperations(edges).run(build()), name="")
            with tf1.Session(graph=graph) as session:
                session.run("init")
                feeds = {"x:0": [0.1, 0.2, 0.3]}
                values.append([session.run(["sum:0", "step"], feeds)[0] for _ in range(3)])
        self.assertAllEqual(values[0], values[1])
        self.assertAllEqual(values[0], values[2])

    def test_refuses_what_cannot_be(self):
        with self.assertRaisesRegex(GraphError, "no operation .gone. to order"):
            OrderOperations([("left", "gone")]).run(build())
        with self.assertRaisesRegex(GraphError, "cycle|loop"):
            OrderOperations([("sum", "left")]).run(build())


if __name__ == "__main__":
    tf.test.main()
