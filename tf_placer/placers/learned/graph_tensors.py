"""Tensors of a graph for a graph-neural network."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.graph_features import GraphFeatures, compute_shares
from tf_placer.placers.learned.sparse_matrix import SparseMatrix

__all__ = ["GraphTensors"]


class GraphTensors:
    """A graph as tensors; groups are numbered in the order in which they are placed.

    Attributes:
        num_groups: number of groups.
        order: int32 [num_groups], the group that is placed first, second and so on.
        positions: int32 [num_groups], the position of each group in `order`.
        group_features: see `GraphFeatures`.
        device_features: see `GraphFeatures`.
        device_secs: see `GraphFeatures`.
        device_fill: see `GraphFeatures`.
        received: [num_groups, num_groups], the share that each group (column) has in the bytes that
            a group (row) receives.
        sent: [num_groups, num_groups], the share that each group (column) has in the bytes that a
            group (row) sends.
        near_bytes: [num_groups, num_groups], the share that each earlier group (column) has in the
            bytes that pass between a group (row) and earlier ones, either way.
        near_secs: [num_groups, num_groups], the seconds to send those bytes.
    """

    def __init__(self, graph: GraphFeatures) -> None:
        """Converts features to tensors."""
        self.num_groups = count = len(graph.order)
        producers, consumers = graph.edges.T
        self.order = tf.constant(graph.order)
        self.positions = tf.constant(np.argsort(graph.order), tf.int32)
        self.group_features = tf.constant(graph.group_features)
        self.device_features = tf.constant(graph.device_features)
        self.device_secs = tf.constant(graph.device_secs)
        self.device_fill = tf.constant(graph.device_fill)
        self.received = SparseMatrix(
            consumers, producers, compute_shares(consumers, graph.edge_bytes, count), count
        )
        self.sent = SparseMatrix(
            producers, consumers, compute_shares(producers, graph.edge_bytes, count), count
        )
        later, earlier = np.maximum(producers, consumers), np.minimum(producers, consumers)
        near_bytes = compute_shares(later, graph.edge_bytes, count)
        self.near_bytes = SparseMatrix(later, earlier, near_bytes, count)
        self.near_secs = SparseMatrix(later, earlier, graph.edge_secs, count)
