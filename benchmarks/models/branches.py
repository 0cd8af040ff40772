"""Branches of dense layers that share nothing but the step: the plainest parallel training graph.

With one branch it is a chain, and no placement is faster than one device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.training import make_optimizer, train
from benchmarks.models.transformer import dense

tf1 = tf.compat.v1

__all__ = ["Branches", "build"]

_GRAPH_SEED = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Branches:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        inputs: the placeholder of each branch, float32 [batch, units].
        loss: the tensor of the loss, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initialises all variables.
        batch: rows per step.
        units: width of every layer.
    """

    graph: tf.Graph
    inputs: tuple[str, ...]
    loss: str
    train_op: str
    initializer: str
    batch: int
    units: int

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Endless random rows; each branch learns to give them back.

        Args:
            seed: of the data.

        Yields:
            The values of a step by the name of their placeholder.
        """
        random = np.random.default_rng(seed)
        while True:
            yield {
                name: random.standard_normal([self.batch, self.units], np.float32)
                for name in self.inputs
            }


def build(
    branches: int = 2,
    layers: int = 4,
    units: int = 1024,
    batch: int = 256,
    learning_rate: float = 0.01,
) -> Branches:
    """Builds the model with its gradients and updates in a graph of its own.

    Args:
        branches: how many, each with data of its own.
        layers: dense layers of each.
        units: width of every layer.
        batch: rows per step.
        learning_rate: of gradient descent.

    Raises:
        ValueError: a size is not positive.
    """
    sizes = {"branches": branches, "layers": layers, "units": units, "batch": batch}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, not {size}")
    with tf.Graph().as_default() as graph:
        tf1.set_random_seed(_GRAPH_SEED)
        inputs, losses = [], []
        initial = tf1.variance_scaling_initializer(1.0)
        for number in range(branches):
            with tf1.variable_scope(f"branch_{number}", initializer=initial, use_resource=True):
                rows = tf1.placeholder(tf.float32, [batch, units], name="rows")
                value = rows
                for layer in range(layers):
                    value = tf.tanh(dense(value, units, f"layer_{layer}"))
                losses.append(tf.reduce_mean(tf.square(value - rows)))
                inputs.append(rows.name)
        loss = tf.add_n(losses, name="loss")
        train_op = train(loss, make_optimizer("sgd", learning_rate))
        initializer = tf1.global_variables_initializer()
    return Branches(graph, tuple(inputs), loss.name, train_op.name, initializer.name, batch, units)
