"""What the training graphs of all models have in common: an optimizer by name, and its update."""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["make_optimizer", "train"]


def make_optimizer(name: str, learning_rate: float) -> tf.compat.v1.train.Optimizer:
    """Makes an optimizer with its usual settings.

    Args:
        name: "adam", "momentum", "rmsprop" or "sgd".
        learning_rate: of the optimizer.

    Returns:
        The optimizer.

    Raises:
        ValueError: the optimizer is not one of these.
    """
    if name == "adam":
        return tf1.train.AdamOptimizer(learning_rate)
    if name == "momentum":
        return tf1.train.MomentumOptimizer(learning_rate, momentum=0.9)
    if name == "rmsprop":
        return tf1.train.RMSPropOptimizer(learning_rate)
    if name == "sgd":
        return tf1.train.GradientDescentOptimizer(learning_rate)
    raise ValueError(f"optimizer must be adam, momentum, rmsprop or sgd, not {name!r}")


def train(
    loss: tf.Tensor, optimizer: tf.compat.v1.train.Optimizer, clip_norm: float | None = None
) -> tf.Operation:
    """Builds one update of all trainable variables and of the global step.

    Args:
        loss: what to minimise.
        optimizer: how.
        clip_norm: the largest norm of all gradients together; no limit if None.

    Returns:
        The operation; it is in the `train_op` collection.

    Raises:
        ValueError: the norm is not positive.
    """
    if clip_norm is not None and clip_norm <= 0:
        raise ValueError(f"clip_norm must be positive, not {clip_norm}")
    global_step = tf1.train.get_or_create_global_step()
    gradients = optimizer.compute_gradients(loss)
    if clip_norm is not None:
        values, variables = zip(*gradients, strict=True)
        clipped, _ = tf.clip_by_global_norm(values, clip_norm)
        gradients = list(zip(clipped, variables, strict=True))
    # This adds the operation to the collection.
    return optimizer.apply_gradients(gradients, global_step=global_step, name="train")
