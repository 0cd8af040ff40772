"""The layers of convolutional models.

References:
    Ioffe, Szegedy: Batch Normalization: Accelerating Deep Network Training by Reducing Internal
    Covariate Shift, 2015.
"""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["ConvolutionLayers", "batch_norm", "convolve", "dense"]

_MOVING_AVERAGE_DECAY = 0.9997
_BATCH_NORM_EPSILON = 1e-3


class ConvolutionLayers:
    """Convolutions with batch normalization, and what is made of them."""

    def __init__(self, width: float = 1.0, *, fused: bool = True) -> None:
        """Makes no variables yet.

        Args:
            width: factor on the channels of every convolution.
            fused: whether batch normalization is one operation; see `batch_norm`.
        """
        self._width, self._fused = width, fused

    def convolution(
        self,
        value: tf.Tensor,
        channels: int,
        size: int | tuple[int, int],
        name: str,
        *,
        stride: int = 1,
        padding: str = "SAME",
    ) -> tf.Tensor:
        """Convolves, normalizes over the batch and rectifies; see `convolve`.

        The channels are those of the result, before the factor on them.
        """
        channels = max(1, round(channels * self._width))
        with tf1.variable_scope(name):
            value = convolve(value, channels, size, stride=stride, padding=padding)
            return tf.nn.relu(batch_norm(value, fused=self._fused))

    def chain(
        self, value: tf.Tensor, name: str, *layers: tuple[int, int | tuple[int, int]]
    ) -> tf.Tensor:
        """Convolutions of (channels, size) in a row."""
        with tf1.variable_scope(name):
            for i, (channels, size) in enumerate(layers):
                value = self.convolution(value, channels, size, f"conv_{i}")
        return value

    def shrinking_chain(
        self, value: tf.Tensor, name: str, *layers: tuple[int, int | tuple[int, int]]
    ) -> tf.Tensor:
        """Convolutions of (channels, size) in a row, the last of which halves the size."""
        value = self.chain(value, name, *layers[:-1])
        channels, size = layers[-1]
        last = f"{name}/conv_{len(layers) - 1}"
        return self.convolution(value, channels, size, last, stride=2, padding="VALID")

    def pool(self, value: tf.Tensor, channels: int, name: str) -> tf.Tensor:
        """Applies average pooling, then a convolution."""
        with tf1.variable_scope(name):
            value = tf.nn.avg_pool2d(value, 3, 1, "SAME")
            return self.convolution(value, channels, 1, "conv_0")


def convolve(
    value: tf.Tensor,
    channels: int,
    size: int | tuple[int, int],
    *,
    stride: int = 1,
    padding: str = "SAME",
) -> tf.Tensor:
    """Convolves and does nothing else, with a kernel in the current variable scope.

    Args:
        value: float32 [batch, height, width, channels].
        channels: of the result.
        size: of the window, or its height and width.
        stride: of the window, in both directions.
        padding: "SAME" or "VALID".

    """
    height, breadth = (size, size) if isinstance(size, int) else size
    kernel = tf1.get_variable("kernel", [height, breadth, value.shape[-1], channels])
    return tf1.nn.conv2d(value, kernel, strides=stride, padding=padding)


def batch_norm(value: tf.Tensor, *, scale: bool = False, fused: bool = True) -> tf.Tensor:
    """Normalizes over the batch, with variables in the current variable scope.

    The updates of the moving averages are in the UPDATE_OPS collection.

    Args:
        value: float32 [batch, height, width, channels].
        scale: with a learned scale beside the offset; without one where the next layer's weights
            can scale.
        fused: whether it is one operation, or the dozen of arithmetic that TensorFlow had before
            1.0.
    """
    channels = value.shape[-1]
    ones, zeros = tf1.ones_initializer(), tf1.zeros_initializer()
    offset = tf1.get_variable("offset", [channels], initializer=zeros)
    factors = tf1.get_variable("scale", [channels], initializer=ones) if scale else None
    if fused:
        factors = tf.ones([channels]) if factors is None else factors
        value, mean, variance = tf1.nn.fused_batch_norm(
            value, factors, offset, epsilon=_BATCH_NORM_EPSILON
        )
    else:
        mean, variance = tf1.nn.moments(value, [0, 1, 2])
        value = tf.nn.batch_normalization(
            value, mean, variance, offset, factors, _BATCH_NORM_EPSILON
        )
    for name, now, first in ("mean", mean, zeros), ("variance", variance, ones):
        moving = tf1.get_variable(f"moving_{name}", [channels], initializer=first, trainable=False)
        update = tf1.assign_sub(moving, (moving - now) * (1 - _MOVING_AVERAGE_DECAY))
        tf1.add_to_collection(tf1.GraphKeys.UPDATE_OPS, update)
    return value


def dense(value: tf.Tensor, classes: int) -> tf.Tensor:
    """Adds a classifier's last layer, with small first weights: float32 [batch, classes]."""
    weights = tf1.get_variable(
        "weights", [value.shape[-1], classes], initializer=tf1.variance_scaling_initializer(0.1)
    )
    bias = tf1.get_variable("bias", [classes], initializer=tf1.zeros_initializer())
    return tf.nn.bias_add(tf.matmul(value, weights), bias)
