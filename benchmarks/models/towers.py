"""Towers: replicas of a model that share its variables and learn from a part of the batch each.

References:
    Mirhoseini et al.: Device Placement Optimization with Reinforcement Learning, 2017, section 4.4
    (synchronous and asynchronous towers as the practice to compare with).
    Chen, Pan, Monga, Bengio, Jozefowicz: Revisiting Distributed Synchronous SGD, 2016.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from benchmarks.models.image_classifier import apply

tf1 = tf.compat.v1

__all__ = ["train_towers"]


def train_towers(
    loss_of: Callable[[tf.Tensor, tf.Tensor], tf.Tensor],
    images: tf.Tensor,
    labels: tf.Tensor,
    towers: int,
    optimizer: tf.compat.v1.train.Optimizer,
    *,
    asynchronous: bool,
) -> tuple[tf.Tensor, tf.Operation]:
    """Trains with one part of the batch per tower.

    A tower's operations, those of its gradients among them, are in the name scope `tower_0`,
    `tower_1` and so on; the variables are not. Batches are normalized per tower.

    Synchronous towers make one update with their mean gradients, and the moving averages are those
    of the first tower. Asynchronous ones update variables and moving averages each for themselves
    (`tower_0/train`), with whatever values the variables have when they read them: what they learn
    depends on who is faster, and the global step counts the updates of all towers.

    Args:
        loss_of: makes the loss of images and labels, with variables from `get_variable`.
        images: float32 [batch, height, width, channels].
        labels: int32 [batch].
        towers: number of towers.
        optimizer: how to update the variables.
        asynchronous: whether no tower waits for another.

    Returns:
        The mean loss, and the operation that trains all towers; it alone is in the `train_op`
        collection.
    """
    with tf1.name_scope("batch"):
        parts = zip(tf.split(images, towers), tf.split(labels, towers), strict=True)
    losses, gradients, averages = [], [], []
    for tower, part in enumerate(parts):
        before = len(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS))
        scope = tf1.get_variable_scope()
        with tf1.name_scope(f"tower_{tower}"):
            with tf1.variable_scope(scope, reuse=tower > 0):
                losses.append(loss_of(*part))
            gradients.append(optimizer.compute_gradients(losses[-1]))
        averages.append(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)[before:])
    loss = tf.divide(tf.add_n(losses), towers, name="mean_loss")
    if not asynchronous:
        return loss, apply(_mean(gradients), averages[0], optimizer)
    updates = [
        apply(gradients[tower], averages[tower], optimizer, f"tower_{tower}/train")
        for tower in range(towers)
    ]
    train_op = tf.group(*updates, name="train")
    tf1.get_collection_ref(tf1.GraphKeys.TRAIN_OP)[:] = [train_op]
    return loss, train_op


def _mean(
    towers: list[list[tuple[tf.Tensor, tf.Variable]]],
) -> list[tuple[tf.Tensor, tf.Variable]]:
    """Averages the gradients of each variable."""
    means = []
    with tf1.name_scope("mean_gradients"):
        for of_variable in zip(*towers, strict=True):
            variable = of_variable[0][1]
            with tf1.name_scope(variable.op.name):
                total = tf.add_n([gradient for gradient, _ in of_variable])
                means.append((total / len(towers), variable))
    return means
