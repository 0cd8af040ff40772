"""The parts that the training graphs of all image classifiers share, and pictures for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.models.training import model_graph, training_model
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["apply", "build_classifier", "label_smoothing_loss", "paper_rmsprop", "train_classifier"]

_LABEL_SMOOTHING = 0.1
_PATTERN_SIZE = 5


def build_classifier(
    training: Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Operation]],
    *,
    batch: int,
    image_size: int,
    classes: int,
    use_resource: bool,
) -> TrainingModel:
    """Builds a model in a graph of its own.

    It is fed "images", float32 [batch, image_size, image_size, 3] of about -1 to 1, and "labels",
    int32 [batch].

    Args:
        training: makes the loss and the training operation of images and labels.
        batch: images per step.
        image_size: height and width of the images in pixels.
        classes: number of labels.
        use_resource: resource variables, or the ref variables of old training scripts.
    """
    with model_graph(tf1.variance_scaling_initializer(2.0), use_resource=use_resource):
        images = tf1.placeholder(tf.float32, [batch, image_size, image_size, 3], name="images")
        labels = tf1.placeholder(tf.int32, [batch], name="labels")
        return training_model(
            *training(images, labels), functools.partial(_pictures, batch, image_size, classes)
        )


def _pictures(
    batch: int, image_size: int, classes: int, random: np.random.Generator
) -> dict[str, np.ndarray]:
    """Draws pictures that can be told apart: coarse tiles, the same for each class, and noise."""
    tiles = np.random.default_rng(0).uniform(-1, 1, (classes, _PATTERN_SIZE, _PATTERN_SIZE, 3))
    tile = np.arange(image_size) * _PATTERN_SIZE // image_size
    labels = random.integers(classes, size=batch, dtype=np.int32)
    images = random.standard_normal((batch, image_size, image_size, 3), np.float32)
    images *= 0.1
    images += tiles.astype(np.float32)[labels][:, tile][:, :, tile]
    return {"images": images, "labels": labels}


def label_smoothing_loss(logits: tf.Tensor, labels: tf.Tensor, name: str) -> tf.Tensor:
    """Computes the mean cross entropy with smoothed labels, float32 [].

    Args:
        logits: float32 [batch, classes].
        labels: int32 [batch].
        name: scope of the operations.
    """
    classes = int(logits.shape[1])
    with tf1.name_scope(name):
        rest = _LABEL_SMOOTHING / classes
        smoothed = tf.one_hot(labels, classes, 1 - _LABEL_SMOOTHING + rest, rest)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits(labels=smoothed, logits=logits)
        return tf.reduce_mean(cross_entropy)


def train_classifier(
    loss: tf.Tensor, optimizer: tf.compat.v1.train.Optimizer
) -> tuple[tf.Tensor, tf.Operation]:
    """Builds one update; returns it with the loss, as `build_classifier` wants them."""
    gradients = optimizer.compute_gradients(loss)
    averages = tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)
    return loss, apply(gradients, averages, optimizer)


def apply(
    gradients: Sequence[tuple[tf.Tensor, tf.Variable]],
    averages: Sequence[tf.Tensor],
    optimizer: tf.compat.v1.train.Optimizer,
    name: str = "train",
) -> tf.Operation:
    """Builds one update of the variables, the moving averages and the global step.

    Args:
        gradients: of each variable.
        averages: updates of the moving averages of batch normalization.
        optimizer: how to update the variables.
        name: of the operation, and the scope of its parts.

    Returns:
        The operation; it is in the `train_op` collection.
    """
    global_step = tf1.train.get_or_create_global_step()
    # One operation to wait for, or each part of the update waits for each of hundreds.
    averaged = tf.group(*(update.op for update in averages), name=f"{name}/moving_averages")
    with tf.control_dependencies([averaged]):
        return optimizer.apply_gradients(gradients, global_step=global_step, name=name)


def paper_rmsprop(learning_rate: float) -> tf.compat.v1.train.Optimizer:
    """Makes RMSProp with the settings of the Inception and NASNet papers."""
    return tf1.train.RMSPropOptimizer(learning_rate, decay=0.9, momentum=0.9, epsilon=1.0)
