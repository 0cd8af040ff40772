"""Tests of control edges by which the parts of a step run one after another."""

from __future__ import annotations

import networkx as nx
import tensorflow as tf

from graph_passes.turns import run_in_turn

tf1 = tf.compat.v1


def build_parts() -> tf1.GraphDef:
    """Builds two results that share a product, and a third one."""
    with tf.Graph().as_default() as graph:
        x = tf1.placeholder(tf.float32, [2, 2], name="x")
        shared = tf.matmul(x, x, name="shared")
        tf.tanh(shared, name="first")
        tf.sin(tf.cos(x, name="inner"), name="second")
        tf.exp(shared, name="third")
    return graph.as_graph_def()


def find_order(graph_def: tf1.GraphDef) -> nx.DiGraph:
    edges = [
        (text.removeprefix("^").partition(":")[0], node.name)
        for node in graph_def.node
        for text in node.input
    ]
    return nx.transitive_closure(nx.DiGraph(edges))


class TurnsTest(tf.test.TestCase):
    def test_a_part_begins_when_the_one_before_has_ended(self):
        given = build_parts()
        before = given.SerializeToString(deterministic=True)
        order = find_order(run_in_turn(given, [["first"], ["second"], ["third"]]))
        self.assertTrue(nx.is_directed_acyclic_graph(order))
        for edge in (("shared", "inner"), ("first", "inner"), ("second", "third")):
            self.assertTrue(order.has_edge(*edge), edge)
        self.assertFalse(find_order(given).has_edge("first", "inner"))
        self.assertEqual(given.SerializeToString(deterministic=True), before)

    def test_a_part_that_is_done_already_adds_nothing(self):
        order = find_order(run_in_turn(build_parts(), [["first"], ["shared"], ["x"], ["second"]]))
        self.assertTrue(order.has_edge("first", "inner"))
        self.assertFalse(order.has_edge("first", "shared"))

    def test_values_stay(self):
        values = []
        for graph_def in (build_parts(), run_in_turn(build_parts(), [["third"], ["second"]])):
            with tf.Graph().as_default() as graph, tf1.Session(graph=graph) as session:
                tf.import_graph_def(graph_def, name="")
                fetches = ["first:0", "second:0", "third:0"]
                values.append(session.run(fetches, {"x:0": [[1.0, 2.0], [3.0, 4.0]]}))
        self.assertAllEqual(*values)


if __name__ == "__main__":
    tf.test.main()
