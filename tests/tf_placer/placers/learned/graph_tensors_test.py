import dataclasses

import numpy as np
import tensorflow as tf

from tests.tf_placer.placers import graphs
from tf_placer.placers.learned.graph_features import GraphFeatures
from tf_placer.placers.learned.graph_tensors import GraphTensors


class GraphTensorsTest(tf.test.TestCase):
    def test_edges_of_a_hand_made_graph(self):
        # Group 2 is placed first, then 0, then 1; an edge leads back from 1 to 2.
        groups = graphs.group_graph(3, [(2, 0), (2, 1), (0, 1), (1, 2)], layers=[1, 2, 0])
        # Sorted: (0, 1), (1, 2), (2, 0), (2, 1); 1 is added to the bytes.
        groups = dataclasses.replace(groups, edge_bytes=np.array([3, 4, 5, 0]))
        features = GraphFeatures.from_groups(
            groups, np.ones([3, 2], np.bool_), edge_secs=np.array([1.0, 2.0, 3.0, 4.0])
        )
        tensors = GraphTensors(features)
        self.assertAllEqual(tensors.order, [2, 0, 1])
        self.assertAllEqual(tensors.positions, [1, 2, 0])
        every = tf.eye(3)
        self.assertAllClose(tensors.received @ every, [[0, 0, 1], [1, 0, 0], [0.2, 0.8, 0]])
        self.assertAllClose(tensors.sent @ every, [[0, 6 / 7, 1 / 7], [0, 0, 1], [1, 0, 0]])
        self.assertAllClose(tensors.near_bytes @ every, [[0, 0, 0], [1, 0, 0], [0.6, 0.4, 0]])
        self.assertAllClose(tensors.near_secs @ every, [[0, 0, 0], [3, 0, 0], [6, 1, 0]])


if __name__ == "__main__":
    tf.test.main()
