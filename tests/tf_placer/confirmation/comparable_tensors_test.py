"""Tests of the choice of the tensors that are compared."""

from __future__ import annotations

import tensorflow as tf
from absl.testing import parameterized

from graph_passes.colocation import find_colocation_groups
from graph_passes.op_graph import OpGraph
from tests import graphs
from tf_placer.confirmation.comparable_tensors import list_comparable_tensors

tf1 = tf.compat.v1


class ComparableTensorsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*graphs.FACTORIES)
    def test_a_session_can_fetch_all_tensors_at_once(self, name):
        made = graphs.FACTORIES[name]()
        graph = OpGraph.from_graph_def(made.graph.as_graph_def(), made.fetches, made.feeds)
        tensors = list_comparable_tensors(graph, find_colocation_groups(graph))
        self.assertNotEmpty(tensors)
        positions = [graph.position[graph.index[t.partition(":")[0]]] for t in tensors]
        self.assertEqual(positions, sorted(positions))
        with tf.Graph().as_default() as imported, tf1.Session() as session:
            tf.graph_util.import_graph_def(made.graph.as_graph_def(), name="")
            for operation in made.initializers:
                session.run(imported.get_operation_by_name(operation))
            values = session.run([list(made.fetches), tensors], made.feeds)[1]
        self.assertLen(values, len(tensors))

    def test_large_tensors_are_left_out(self):
        with tf.Graph().as_default() as graph:
            large = tf.ones([2**20 + 1], name="large")
            tf.reduce_sum(large, name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"])
        tensors = list_comparable_tensors(op_graph, find_colocation_groups(op_graph))
        self.assertIn("y:0", tensors)
        self.assertNotIn("large:0", tensors)


if __name__ == "__main__":
    tf.test.main()
