"""Inception-V3 with its auxiliary classifier, as the plain graph code of a TF1 training script.

References:
    Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer
    Vision, 2015 (the architecture, label smoothing and the settings of RMSProp).
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.models.convolution import ConvolutionLayers, dense
from benchmarks.models.image_classifier import build_classifier, label_smoothing_loss, paper_rmsprop
from benchmarks.models.towers import train_towers
from benchmarks.models.training import train
from benchmarks.models.training_model import TrainingModel

tf1 = tf.compat.v1

__all__ = ["build"]

_AUXILIARY_WEIGHT = 0.4


def build(
    batch: int = 32,
    image_size: int = 299,
    classes: int = 1000,
    width: float = 1.0,
    use_resource: bool = True,
    learning_rate: float = 0.045,
    towers: int = 1,
    asynchronous: bool = False,
    fused: bool = True,
) -> TrainingModel:
    """Builds the model with its gradients and updates in a graph of its own.

    There is no dropout, so that a step computes the same whenever and wherever it runs.

    Args:
        batch: images per step, of all towers together.
        image_size: height and width of the images in pixels, at least 75.
        classes: number of labels.
        width: factor on the channels of every convolution.
        use_resource: resource variables, or the ref variables of old training scripts.
        learning_rate: of the optimizer.
        towers: replicas that share the variables and the batch (see `train_towers`).
        asynchronous: whether each of several towers updates the variables by itself.
        fused: whether batch normalization is one operation.
    """
    update = paper_rmsprop(learning_rate)

    def loss_of(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return _total_loss(images, labels, classes, ConvolutionLayers(width, fused=fused))

    def training(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Operation]:
        if towers > 1:
            return train_towers(loss_of, images, labels, towers, update, asynchronous=asynchronous)
        loss = loss_of(images, labels)
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            return loss, train(loss, update)

    return build_classifier(
        training, batch=batch, image_size=image_size, classes=classes, use_resource=use_resource
    )


def _total_loss(
    images: tf.Tensor, labels: tf.Tensor, classes: int, layers: ConvolutionLayers
) -> tf.Tensor:
    middle = _blocks_of_17(_blocks_of_35(_stem(images, layers), layers), layers)
    loss = label_smoothing_loss(_logits(_blocks_of_8(middle, layers), classes), labels, "loss")
    logits = _auxiliary_logits(middle, classes, layers)
    auxiliary_loss = label_smoothing_loss(logits, labels, "auxiliary_loss")
    return tf.add(loss, _AUXILIARY_WEIGHT * auxiliary_loss, name="total_loss")


def _halve(value: tf.Tensor, name: str = "pool") -> tf.Tensor:
    return tf.nn.max_pool2d(value, 3, 2, "VALID", name=name)


def _stem(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """Reduces 299 x 299 pixels to 35 x 35."""
    with tf1.variable_scope("stem"):
        value = layers.convolution(value, 32, 3, "conv_0", stride=2, padding="VALID")
        value = layers.convolution(value, 32, 3, "conv_1", padding="VALID")
        value = _halve(layers.convolution(value, 64, 3, "conv_2"), "pool_0")
        value = layers.convolution(value, 80, 1, "conv_3")
        return _halve(layers.convolution(value, 192, 3, "conv_4", padding="VALID"), "pool_1")


def _blocks_of_35(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """Applies three blocks of 35 x 35 pixels."""
    for block, pooled_channels in zip("bcd", (32, 64, 64), strict=True):
        with tf1.variable_scope(f"mixed_5{block}"):
            branches = [
                layers.chain(value, "branch_0", (64, 1)),
                layers.chain(value, "branch_1", (48, 1), (64, 5)),
                layers.chain(value, "branch_2", (64, 1), (96, 3), (96, 3)),
                layers.pool(value, pooled_channels, "branch_3"),
            ]
            value = tf.concat(branches, 3)
    return value


def _blocks_of_17(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """Reduces 35 x 35 pixels to 17 x 17, then applies four blocks with factorized convolutions."""
    with tf1.variable_scope("mixed_6a"):
        branches = [
            layers.shrinking_chain(value, "branch_0", (384, 3)),
            layers.shrinking_chain(value, "branch_1", (64, 1), (96, 3), (96, 3)),
            _halve(value, "branch_2/pool"),
        ]
        value = tf.concat(branches, 3)
    row, column = (1, 7), (7, 1)
    for block, inner in zip("bcde", (128, 160, 160, 192), strict=True):
        with tf1.variable_scope(f"mixed_6{block}"):
            twice = [(inner, column), (inner, row), (inner, column), (192, row)]
            branches = [
                layers.chain(value, "branch_0", (192, 1)),
                layers.chain(value, "branch_1", (inner, 1), (inner, row), (192, column)),
                layers.chain(value, "branch_2", (inner, 1), *twice),
                layers.pool(value, 192, "branch_3"),
            ]
            value = tf.concat(branches, 3)
    return value


def _blocks_of_8(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """Reduces 17 x 17 pixels to 8 x 8, then applies two blocks, whose branches fork again."""
    with tf1.variable_scope("mixed_7a"):
        branches = [
            layers.shrinking_chain(value, "branch_0", (192, 1), (320, 3)),
            layers.shrinking_chain(
                value, "branch_1", (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)
            ),
            _halve(value, "branch_2/pool"),
        ]
        value = tf.concat(branches, 3)
    for block in "bc":
        with tf1.variable_scope(f"mixed_7{block}"):
            second = layers.chain(value, "branch_1", (384, 1))
            third = layers.chain(value, "branch_2", (448, 1), (384, 3))
            branches = [
                layers.chain(value, "branch_0", (320, 1)),
                layers.chain(second, "branch_1/row", (384, (1, 3))),
                layers.chain(second, "branch_1/column", (384, (3, 1))),
                layers.chain(third, "branch_2/row", (384, (1, 3))),
                layers.chain(third, "branch_2/column", (384, (3, 1))),
                layers.pool(value, 192, "branch_3"),
            ]
            value = tf.concat(branches, 3)
    return value


def _auxiliary_logits(value: tf.Tensor, classes: int, layers: ConvolutionLayers) -> tf.Tensor:
    with tf1.variable_scope("auxiliary"):
        # Small images leave less than the 17 x 17 pixels that windows of 5 x 5 are for.
        window = min(5, int(value.shape[1]))
        value = tf.nn.avg_pool2d(value, window, 3, "VALID")
        value = layers.convolution(value, 128, 1, "conv_0")
        size = int(value.shape[1])
        value = layers.convolution(value, 768, size, "conv_1", padding="VALID")
        return dense(tf.squeeze(value, [1, 2]), classes)


def _logits(value: tf.Tensor, classes: int) -> tf.Tensor:
    with tf1.variable_scope("logits"):
        return dense(tf.reduce_mean(value, [1, 2]), classes)
