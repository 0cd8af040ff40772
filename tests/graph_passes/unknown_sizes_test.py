from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph
from graph_passes.unknown_sizes import unknown_sizes

tf1 = tf.compat.v1


class UnknownSizesTest(tf.test.TestCase):
    def test_lists_tensors_of_the_step_in_order(self):
        with tf.Graph().as_default() as graph:
            x = tf1.placeholder(tf.float32, [None, 4], name="x")
            tf1.placeholder(tf.float32, [None], name="unused")
            tf1.placeholder(tf.string, [None], name="text")
            kept, _ = tf.dynamic_partition(x, tf.cast(x[:, 0] > 0, tf.int32), 2, name="kept")
            tf.reshape(kept, tf1.placeholder(tf.int32, name="shape"), name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], ["x:0", "shape:0"])
        described = unknown_sizes(op_graph)
        self.assertIn("'kept:0' [?, 4]", described)
        self.assertEqual(described[-1], "'y:0' of unknown rank")
        feeds = {"x:0": np.zeros([3, 4], np.float32), "shape:0": np.array([2, 2], np.int32)}
        of_fed = unknown_sizes(op_graph.with_fed_values(feeds))
        self.assertIn("'kept:0' [?, 4]", of_fed)
        self.assertNotIn("'y:0'", " ".join(of_fed))
        self.assertLess(len(of_fed), len(described))

    def test_lists_nothing_if_sizes_are_known(self):
        with tf.Graph().as_default() as graph:
            tf.exp(tf1.placeholder(tf.float32, [3, 4], name="x"), name="y")
        op_graph = OpGraph.from_graph_def(graph.as_graph_def(), ["y"], ["x:0"])
        self.assertEqual(unknown_sizes(op_graph), [])


if __name__ == "__main__":
    tf.test.main()
