"""A training step with many activations."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.graph_parts import TestGraph, new_graph

tf1 = tf.compat.v1


def build(batch: int, units: int, layers: int) -> TestGraph:
    """Builds a step of layers in a row, whose activations wait for the backward pass."""
    with new_graph() as graph:
        hidden = x = tf1.placeholder(tf.float32, [batch, units], name="x")
        for layer in range(layers):
            initializer = tf1.random_uniform_initializer(-0.1, 0.1, seed=layer)
            weights = tf1.get_variable(f"weights_{layer}", [units, units], initializer=initializer)
            hidden = tf.tanh(hidden @ weights, name=f"activation_{layer}")
        loss = tf.reduce_sum(hidden, name="loss")
        tf1.train.GradientDescentOptimizer(1e-3).minimize(loss, name="train")
        tf1.global_variables_initializer()
    feeds = {x.name: np.random.default_rng(0).random([batch, units], np.float32)}
    return TestGraph(graph, ["train", loss.name], feeds)
