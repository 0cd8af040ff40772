"""Branches of dense layers that share nothing but the step: the plainest parallel training graph.

With one branch it is a chain, and no placement is faster than one device.
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.training import model_graph, train, training_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.models.transformer import dense

tf1 = tf.compat.v1

__all__ = ["build"]


def build(
    branches: int = 2,
    layers: int = 4,
    units: int = 1024,
    batch: int = 256,
    learning_rate: float = 0.01,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    Each branch is fed "branch_0/rows" and so on, float32 [batch, units], and learns to give them
    back by gradient descent.
    """
    with model_graph(tf1.variance_scaling_initializer(1.0)):
        placeholders, losses = [], []
        for number in range(branches):
            with tf1.variable_scope(f"branch_{number}"):
                rows = tf1.placeholder(tf.float32, [batch, units], name="rows")
                value = rows
                for layer in range(layers):
                    value = tf.tanh(dense(value, units, f"layer_{layer}"))
                losses.append(tf.reduce_mean(tf.square(value - rows)))
                placeholders.append(rows.op.name)
        loss = tf.add_n(losses, name="loss")
        return training_model(
            loss,
            train(loss, tf1.train.GradientDescentOptimizer(learning_rate)),
            lambda random: {
                name: random.standard_normal([batch, units], "float32") for name in placeholders
            },
        )
