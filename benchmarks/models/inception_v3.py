"""Inception-V3 with its auxiliary classifier, as the plain graph code of a TF1 training script.

References:
    Szegedy, Vanhoucke, Ioffe, Shlens, Wojna: Rethinking the Inception Architecture for Computer
    Vision, 2015 (the architecture, label smoothing and the settings of RMSProp).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.models.convolution import ConvolutionLayers
from benchmarks.models.training import make_optimizer, train

tf1 = tf.compat.v1

__all__ = ["InceptionV3", "build"]

_GRAPH_SEED = 1
_MIN_IMAGE_SIZE = 75
_AUXILIARY_WEIGHT = 0.4
_LABEL_SMOOTHING = 0.1
_PATTERN_SIZE = 5


@dataclasses.dataclass(frozen=True)
class InceptionV3:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        images: the placeholder, float32 [batch, image_size, image_size, 3], about -1 to 1.
        labels: the placeholder, int32 [batch].
        loss: smoothed cross entropy, with the auxiliary one in proportion, float32 [].
        train_op: the operation that updates the variables, the moving averages and the global step.
        initializer: the operation that initialises all variables.
        batch: images per step.
        image_size: their height and width in pixels.
        classes: number of labels.
    """

    graph: tf.Graph
    images: str
    labels: str
    loss: str
    train_op: str
    initializer: str
    batch: int
    image_size: int
    classes: int

    def batches(self, seed: int = 0) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Endless made-up pictures that can be told apart: coarse tiles, the same for each class.

        Args:
            seed: of the labels and the noise; the tiles are always the same.

        Yields:
            float32 [batch, image_size, image_size, 3] and int32 [batch], values for `images` and
            `labels`.
        """
        tiles = np.random.default_rng(0).uniform(
            -1, 1, (self.classes, _PATTERN_SIZE, _PATTERN_SIZE, 3)
        )
        tiles = tiles.astype(np.float32)
        tile = np.arange(self.image_size) * _PATTERN_SIZE // self.image_size
        random = np.random.default_rng(seed)
        shape = (self.batch, self.image_size, self.image_size, 3)
        while True:
            labels = random.integers(self.classes, size=self.batch, dtype=np.int32)
            images = random.standard_normal(shape, np.float32)
            images *= 0.1
            images += tiles[labels][:, tile][:, :, tile]
            yield images, labels

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """The batches, as what to feed to a step."""
        for images, labels in self.batches(seed):
            yield {self.images: images, self.labels: labels}


def build(
    batch: int = 32,
    image_size: int = 299,
    classes: int = 1000,
    width: float = 1.0,
    optimizer: str = "rmsprop",
    use_resource: bool = True,
    aux: bool = True,
    learning_rate: float = 0.045,
) -> InceptionV3:
    """Builds the model with its gradients and updates in a graph of its own.

    There is no dropout, so that a step computes the same whenever and wherever it runs.

    Args:
        batch: images per step.
        image_size: height and width of the images in pixels, at least 75.
        classes: number of labels.
        width: factor on the channels of every convolution.
        optimizer: "rmsprop" (with the settings of the paper), "adam", "momentum" or "sgd".
        use_resource: resource variables, or the ref variables of old training scripts.
        aux: with the auxiliary classifier.
        learning_rate: of the optimizer.

    Returns:
        The graph and its names.

    Raises:
        ValueError: a size is not positive, the images are too small or the optimizer is not one of
            these.
    """
    for name, size in {"batch": batch, "classes": classes, "width": width}.items():
        if size <= 0:
            raise ValueError(f"{name} must be positive, not {size}")
    if image_size < _MIN_IMAGE_SIZE:
        raise ValueError(f"image_size must be at least {_MIN_IMAGE_SIZE}, not {image_size}")
    update = _optimizer(optimizer, learning_rate)
    graph = tf.Graph()
    with graph.as_default():
        tf1.set_random_seed(_GRAPH_SEED)
        with tf1.variable_scope(
            tf1.get_variable_scope(),
            initializer=tf1.variance_scaling_initializer(2.0),
            use_resource=use_resource,
        ):
            images = tf1.placeholder(tf.float32, [batch, image_size, image_size, 3], name="images")
            labels = tf1.placeholder(tf.int32, [batch], name="labels")
            layers = ConvolutionLayers(width)
            middle = _blocks_of_17(_blocks_of_35(_stem(images, layers), layers), layers)
            loss = _loss(_logits(_blocks_of_8(middle, layers), classes), labels, "loss")
            if aux:
                auxiliary_loss = _loss(
                    _auxiliary_logits(middle, classes, layers), labels, "auxiliary_loss"
                )
                loss = tf.add(loss, _AUXILIARY_WEIGHT * auxiliary_loss, name="total_loss")
            with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
                train_op = train(loss, update)
        initializer = tf1.global_variables_initializer()
    return InceptionV3(
        graph,
        images.name,
        labels.name,
        loss.name,
        train_op.name,
        initializer.name,
        batch,
        image_size,
        classes,
    )


def _halve(value: tf.Tensor, name: str = "pool") -> tf.Tensor:
    return tf.nn.max_pool2d(value, 3, 2, "VALID", name=name)


def _stem(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """From 299 x 299 pixels to 35 x 35."""
    with tf1.variable_scope("stem"):
        value = layers.convolution(value, 32, 3, "conv_0", stride=2, padding="VALID")
        value = layers.convolution(value, 32, 3, "conv_1", padding="VALID")
        value = _halve(layers.convolution(value, 64, 3, "conv_2"), "pool_0")
        value = layers.convolution(value, 80, 1, "conv_3")
        return _halve(layers.convolution(value, 192, 3, "conv_4", padding="VALID"), "pool_1")


def _blocks_of_35(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """Three blocks of 35 x 35 pixels."""
    for block, pooled_channels in zip("bcd", (32, 64, 64), strict=True):
        with tf1.variable_scope(f"mixed_5{block}"):
            branches = [
                layers.chain(value, "branch_0", (64, 1)),
                layers.chain(value, "branch_1", (48, 1), (64, 5)),
                layers.chain(value, "branch_2", (64, 1), (96, 3), (96, 3)),
                layers.pooled(value, pooled_channels, "branch_3"),
            ]
            value = tf.concat(branches, 3)
    return value


def _blocks_of_17(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """From 35 x 35 pixels to 17 x 17, and four blocks of that, with factorised convolutions."""
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
                layers.pooled(value, 192, "branch_3"),
            ]
            value = tf.concat(branches, 3)
    return value


def _blocks_of_8(value: tf.Tensor, layers: ConvolutionLayers) -> tf.Tensor:
    """From 17 x 17 pixels to 8 x 8, and two blocks of that, whose branches fork again."""
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
                layers.pooled(value, 192, "branch_3"),
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
        return _dense(tf.squeeze(value, [1, 2]), classes)


def _logits(value: tf.Tensor, classes: int) -> tf.Tensor:
    with tf1.variable_scope("logits"):
        return _dense(tf.reduce_mean(value, [1, 2]), classes)


def _dense(value: tf.Tensor, classes: int) -> tf.Tensor:
    weights = tf1.get_variable(
        "weights", [value.shape[-1], classes], initializer=tf1.variance_scaling_initializer(0.1)
    )
    bias = tf1.get_variable("bias", [classes], initializer=tf1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(value, weights), bias)


def _loss(logits: tf.Tensor, labels: tf.Tensor, name: str) -> tf.Tensor:
    """Mean cross entropy with smoothed labels."""
    classes = int(logits.shape[1])
    with tf1.name_scope(name):
        rest = _LABEL_SMOOTHING / classes
        smoothed = tf.one_hot(labels, classes, 1 - _LABEL_SMOOTHING + rest, rest)
        cross_entropy = tf.nn.softmax_cross_entropy_with_logits(labels=smoothed, logits=logits)
        return tf.reduce_mean(cross_entropy)


def _optimizer(name: str, learning_rate: float) -> tf.compat.v1.train.Optimizer:
    if name == "rmsprop":
        return tf1.train.RMSPropOptimizer(learning_rate, decay=0.9, momentum=0.9, epsilon=1.0)
    return make_optimizer(name, learning_rate)
