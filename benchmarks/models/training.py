"""The parts that the training graphs of all models have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["model_graph", "train", "training_model"]

_GRAPH_SEED = 1


@contextlib.contextmanager
def model_graph(initializer: Any, *, use_resource: bool = True) -> Iterator[None]:
    """Opens a new graph, seeded, whose variables start by the initializer.

    Args:
        initializer: of variables without one of their own.
        use_resource: resource variables, or the ref variables of old training scripts.
    """
    with tf.Graph().as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        scope = tf1.get_variable_scope()
        with tf1.variable_scope(scope, initializer=initializer, use_resource=use_resource):
            yield


def training_model(
    loss: tf.Tensor,
    train_op: tf.Operation,
    draw: Callable[[np.random.Generator], Mapping[str, np.ndarray]],
) -> TrainingModel:
    """Completes a model by the initializer of all its variables; see `TrainingModel`."""
    initializer = tf1.global_variables_initializer()
    return TrainingModel(loss.graph, loss.name, train_op.name, initializer.name, draw)


def train(
    loss: tf.Tensor, optimizer: tf.compat.v1.train.Optimizer, clip_norm: float | None = None
) -> tf.Operation:
    """Builds one update of all trainable variables and of the global step.

    Args:
        loss: what to minimize.
        optimizer: how.
        clip_norm: the largest norm of all gradients together; no limit if None.

    Returns:
        The operation; it is in the `train_op` collection.
    """
    global_step = tf1.train.get_or_create_global_step()
    gradients = optimizer.compute_gradients(loss)
    if clip_norm is not None:
        values, variables = zip(*gradients, strict=True)
        clipped, _ = tf.clip_by_global_norm(values, clip_norm)
        gradients = list(zip(clipped, variables, strict=True))
    # This adds the operation to the collection.
    return optimizer.apply_gradients(gradients, global_step=global_step, name="train")
