"""NASNet-A, whose cells have many branches, as the plain graph code of a TF1 training script.

References:
    Zoph, Vasudevan, Shlens, Le: Learning Transferable Architectures for Scalable Image Recognition,
    2018, figures 2 and 4 (the cells and their order) and appendix A (what the cells are made of).
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.convolution import batch_norm, convolve, dense
from benchmarks.models.image_classifier import (
    build_classifier,
    label_smoothing_loss,
    paper_rmsprop,
    train_classifier,
)
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["build"]

_STEM_CHANNELS = 32


def build(
    cells: int = 4,
    filters: int = 44,
    batch: int = 32,
    image_size: int = 224,
    classes: int = 1000,
    use_resource: bool = True,
    learning_rate: float = 0.04,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    The defaults are those of the small model for phones, which the paper calls 4 @ 1056: four
    normal cells between reductions, and 6 * 4 * 44 = 1056 channels at the end. There is no dropout
    and no dropping of paths, so that a step computes the same whenever and wherever it runs, and no
    auxiliary classifier.

    Args:
        cells: normal cells in a row, of which there are three rows.
        filters: of a cell of the first row, a multiple of 4; of the next rows, twice as many each.
        batch: images per step.
        image_size: height and width of the images in pixels, at least 32.
        classes: number of labels.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
    """

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        features = tf.nn.relu(_features(images, cells, filters))
        with tf1.variable_scope("logits"):
            logits = dense(tf.reduce_mean(features, [1, 2]), classes)
        loss = label_smoothing_loss(logits, labels, "loss")
        return train_classifier(loss, paper_rmsprop(learning_rate))

    return build_classifier(
        training, batch=batch, image_size=image_size, classes=classes, use_resource=use_resource
    )


def _features(images: tf.Tensor, cells: int, filters: int) -> tf.Tensor:
    """Reduces 224 x 224 pixels to 7 x 7; each cell reads the results of the two before it."""
    with tf1.variable_scope("stem"):
        value = convolve(images, _STEM_CHANNELS, 3, stride=2, padding="VALID")
        value = batch_norm(value, scale=True)
    before, value = value, _reduction_cell(value, value, filters // 4, "stem_0")
    before, value = value, _reduction_cell(value, before, filters // 2, "stem_1")
    for row in range(3):
        if row:
            before, value = value, _reduction_cell(value, before, filters, f"reduction_{row}")
        for i in range(cells):
            before, value = value, _normal_cell(value, before, filters, f"row_{row}/cell_{i}")
        filters *= 2
    return value


def _normal_cell(value: tf.Tensor, before: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """Keeps the size; the paper's figure 4, left."""
    with tf1.variable_scope(name):
        before = _fit_size(before, value, filters)
        value = _squeeze(value, filters, "now")
        with tf1.variable_scope("sum_0"):
            left = _separable(value, filters, 5, "left") + _separable(before, filters, 3, "right")
        with tf1.variable_scope("sum_1"):
            middle = _separable(before, filters, 5, "left") + _separable(
                before, filters, 3, "right"
            )
        with tf1.variable_scope("sum_2"):
            pooled = tf.nn.avg_pool2d(value, 3, 1, "SAME") + before
        with tf1.variable_scope("sum_3"):
            twice = tf.nn.avg_pool2d(before, 3, 1, "SAME") + tf.nn.avg_pool2d(before, 3, 1, "SAME")
        with tf1.variable_scope("sum_4"):
            right = _separable(value, filters, 3, "left") + value
        return tf.concat([before, left, middle, pooled, twice, right], 3)


def _reduction_cell(value: tf.Tensor, before: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """Halves the size; the paper's figure 4, right."""
    with tf1.variable_scope(name):
        before = _fit_size(before, value, filters)
        value = _squeeze(value, filters, "now")
        with tf1.variable_scope("sum_0"):
            first = _separable(value, filters, 5, "left", 2) + _separable(
                before, filters, 7, "right", 2
            )
        with tf1.variable_scope("sum_1"):
            second = tf.nn.max_pool2d(value, 3, 2, "SAME") + _separable(
                before, filters, 7, "right", 2
            )
        with tf1.variable_scope("sum_2"):
            third = tf.nn.avg_pool2d(value, 3, 2, "SAME") + _separable(
                before, filters, 5, "right", 2
            )
        with tf1.variable_scope("sum_3"):
            fourth = tf.nn.avg_pool2d(first, 3, 1, "SAME") + second
        with tf1.variable_scope("sum_4"):
            fifth = _separable(first, filters, 3, "left") + tf.nn.max_pool2d(value, 3, 2, "SAME")
        return tf.concat([second, third, fourth, fifth], 3)


def _fit_size(before: tf.Tensor, value: tf.Tensor, filters: int) -> tf.Tensor:
    """Fits the result of the cell before the last one to the size of the last one's result.

    Two paths halve the size, the second of which sees the pixels that the first one skips.
    """
    if before.shape[1] == value.shape[1]:
        # The first cell of the stem reads its input twice; others may have the channels already.
        fits = before is value or before.shape[3] == filters
        return before if fits else _squeeze(before, filters, "before")
    with tf1.variable_scope("before"):
        before = tf.nn.relu(before)
        shifted = tf.pad(before, [[0, 0], [0, 1], [0, 1], [0, 0]])[:, 1:, 1:, :]
        paths = []
        for i, path in enumerate((before, shifted)):
            with tf1.variable_scope(f"path_{i}"):
                paths.append(convolve(tf.nn.avg_pool2d(path, 1, 2, "VALID"), filters // 2, 1))
        return batch_norm(tf.concat(paths, 3), scale=True)


def _squeeze(value: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """Changes the number of channels to that of the branches of a cell."""
    with tf1.variable_scope(name):
        return batch_norm(convolve(tf.nn.relu(value), filters, 1), scale=True)


def _separable(value: tf.Tensor, filters: int, size: int, name: str, stride: int = 1) -> tf.Tensor:
    """Applies two separable convolutions in a row, each activated before and normalized after."""
    with tf1.variable_scope(name):
        for i, step in enumerate((stride, 1)):
            with tf1.variable_scope(f"separable_{i}"):
                kernel = tf1.get_variable("depthwise", [size, size, value.shape[3], 1])
                value = tf.nn.depthwise_conv2d(
                    tf.nn.relu(value), kernel, [1, step, step, 1], "SAME"
                )
                value = batch_norm(convolve(value, filters, 1), scale=True)
    return value
