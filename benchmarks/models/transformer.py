"""The layers of transformers, from primitive operations as TF1 training scripts had them.

Values are matrices with one row per token, float32 [batch * length, units].

References:
    Vaswani et al.: Attention Is All You Need, 2017 (section 3.2).
    Ba, Kiros, Hinton: Layer Normalization, 2016.
    Hendrycks, Gimpel: Gaussian Error Linear Units, 2016 (GELU, in its approximation with tanh).
    Srivastava et al.: Dropout: A Simple Way to Prevent Neural Networks from Overfitting, 2014.
"""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = [
    "CLIP_NORM",
    "attention",
    "causal_bias",
    "dense",
    "drop_out",
    "feed_forward",
    "gelu",
    "layer_norm",
    "transformer_initializer",
]

CLIP_NORM = 1.0
"""The largest norm of all gradients of a transformer."""
_INITIALIZER_STDDEV = 0.02
_INNER_FACTOR = 4
_NORM_EPSILON = 1e-12
_HIDDEN_SCORE = -1e9


def transformer_initializer() -> Any:
    """Makes the initializer of weights: normal, cut off at two standard deviations."""
    return tf1.truncated_normal_initializer(stddev=_INITIALIZER_STDDEV)


def dense(value: tf.Tensor, units: int, name: str) -> tf.Tensor:
    """Multiplies by weights and adds a bias, with variables of its own: float32 [rows, units]."""
    with tf1.variable_scope(name):
        kernel = tf1.get_variable("kernel", [value.shape[-1], units])
        bias = tf1.get_variable("bias", [units], initializer=tf1.zeros_initializer())
        return tf.nn.bias_add(tf.matmul(value, kernel), bias)


def layer_norm(value: tf.Tensor, name: str = "norm") -> tf.Tensor:
    """Normalizes each row to mean 0 and variance 1, then scales and shifts it by variables."""
    with tf1.variable_scope(name):
        units = value.shape[-1]
        scale = tf1.get_variable("scale", [units], initializer=tf1.ones_initializer())
        offset = tf1.get_variable("offset", [units], initializer=tf1.zeros_initializer())
        mean, variance = tf.nn.moments(value, [-1], keepdims=True)
        return tf.nn.batch_normalization(value, mean, variance, offset, scale, _NORM_EPSILON)


def gelu(value: tf.Tensor) -> tf.Tensor:
    """Applies Gaussian error linear units, approximated with tanh."""
    with tf1.name_scope("gelu"):
        inner = math.sqrt(2 / math.pi) * (value + 0.044715 * tf.pow(value, 3))
        return value * (0.5 * (1.0 + tf.tanh(inner)))


def drop_out(value: tf.Tensor, rate: float) -> tf.Tensor:
    """Sets a share of the values to 0 and scales the others to keep the mean.

    With a rate of 0 there is no operation for it.
    """
    if rate == 0:
        return value
    with tf1.name_scope("dropout"):
        # The mask is as wide as the values and is kept for the gradient, as it was in TF1.
        mask = tf.floor((1 - rate) + tf.random.uniform(value.shape))
        return (value / (1 - rate)) * mask


def causal_bias(length: int) -> tf.Tensor:
    """Makes a bias for scores that hides later tokens from each token: float32 [length, length]."""
    with tf1.name_scope("causal_bias"):
        seen = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        return (1.0 - seen) * _HIDDEN_SCORE


def attention(
    value: tf.Tensor, length: int, heads: int, bias: tf.Tensor, dropout: float = 0.0
) -> tf.Tensor:
    """Applies multi-head attention of every sequence to itself, in the scope "attention".

    Args:
        value: float32 [batch * length, units].
        length: tokens of a sequence.
        heads: attention heads, a divisor of the units.
        bias: added to the scores; float32, broadcast to [batch, heads, length, length].
        dropout: share of the attention weights that are dropped.

    Returns:
        float32 [batch * length, units].
    """
    rows, units = value.shape
    size = units // heads

    def split(projected: tf.Tensor) -> tf.Tensor:
        """Splits by heads: float32 [batch, heads, length, size]."""
        by_head = tf.reshape(projected, [rows // length, length, heads, size])
        return tf.transpose(by_head, [0, 2, 1, 3])

    with tf1.variable_scope("attention"):
        query, key, content = (
            split(dense(value, units, name)) for name in ("query", "key", "value")
        )
        scores = tf.matmul(query, key, transpose_b=True, name="scores") * (1 / math.sqrt(size))
        weights = drop_out(tf.nn.softmax(scores + bias), dropout)
        context = tf.transpose(tf.matmul(weights, content, name="context"), [0, 2, 1, 3])
        return dense(tf.reshape(context, [rows, units]), units, "output")


def feed_forward(value: tf.Tensor) -> tf.Tensor:
    """Applies two dense layers with GELU between them; the inner one is 4 times as wide."""
    units = int(value.shape[-1])
    with tf1.variable_scope("feed_forward"):
        return dense(gelu(dense(value, _INNER_FACTOR * units, "inner")), units, "output")
