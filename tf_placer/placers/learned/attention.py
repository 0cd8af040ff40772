"""Additive attention.

The hidden layer, tanh(query + key), is the largest tensor of a decoder. Here it is
1 - 2 r with r = 1 / (1 + exp(2 query) exp(2 key)): exponentials of queries and of keys, and one
division for each pair. The constant 1 does not change the softmax.

References:
    Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate, ICLR
    2015.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

__all__ = ["AttentionGradient", "AttentionMemory", "attend", "attend_gradient"]


class AttentionMemory(NamedTuple):
    """The items of an attention; "n" is 1 if all queries share them.

    Attributes:
        values: float32 [n, num_items, value_units], the vectors to average.
        keys: float32 [n, num_items, units], the vectors to compare with queries.
        scorer: float32 [units], the weights of the hidden layer.
    """

    values: tf.Tensor
    keys: tf.Tensor
    scorer: tf.Tensor


class AttentionGradient(NamedTuple):
    """The contribution of one step of attention to gradients.

    Attributes:
        query: float32 [count, units], the gradient with respect to the queries.
        keys: float32 [n, num_items, units], the gradient with respect to the keys, before the
            multiplication by the scorer.
        scorer: float32 [count, units], the gradient with respect to the scorer, for each query.
    """

    query: tf.Tensor
    keys: tf.Tensor
    scorer: tf.Tensor


def attend(query: tf.Tensor, memory: AttentionMemory) -> tuple[tf.Tensor, tf.Tensor]:
    """Averages the values, weighted by the softmax of scorer . tanh(query + key).

    Args:
        query: float32 [count, units].
        memory: the items.

    Returns:
        The weights of the items, float32 [count, num_items], which sum to 1, and the averages,
        float32 [count, value_units].
    """
    shares = tf.nn.softmax(-2 * tf.linalg.matvec(_compute_hidden(query, memory), memory.scorer))
    if memory.values.shape[0] == 1:
        return shares, tf.matmul(shares, memory.values[0])
    return shares, tf.linalg.matvec(memory.values, shares, transpose_a=True)


def attend_gradient(
    query: tf.Tensor, memory: AttentionMemory, shares: tf.Tensor, to_average: tf.Tensor
) -> AttentionGradient:
    """Computes the gradient of one step of `attend`; the caller sums over steps.

    The hidden layer is recomputed: stored for all steps of a decoder, it would take gigabytes for
    a few hundred groups.

    Args:
        query: see `attend`.
        memory: see `attend`.
        shares: the weights that `attend` returned.
        to_average: float32 [count, value_units], the gradient with respect to the averages.
    """
    if memory.values.shape[0] == 1:
        to_shares = tf.matmul(to_average, memory.values[0], transpose_b=True)
    else:
        to_shares = tf.linalg.matvec(memory.values, to_average)
    mean = tf.reduce_sum(shares * to_shares, axis=1, keepdims=True)
    to_scores = shares * (to_shares - mean)
    hidden = _compute_hidden(query, memory)
    # The derivative of tanh is 4 (r - r ** 2).
    slopes = 4 * (hidden - hidden * hidden) * to_scores[:, :, tf.newaxis]
    return AttentionGradient(
        query=memory.scorer * tf.reduce_sum(slopes, axis=1),
        keys=tf.reduce_sum(slopes, 0, keepdims=True) if memory.keys.shape[0] == 1 else slopes,
        scorer=-2 * tf.linalg.matvec(hidden, to_scores, transpose_a=True),
    )


def _compute_hidden(query: tf.Tensor, memory: AttentionMemory) -> tf.Tensor:
    """Computes r of the hidden layer, float32 [count, num_items, units]."""
    # Avoid infinity times zero; trained networks stay far within these bounds.
    to_query, to_keys = (
        tf.exp(tf.clip_by_value(2 * each, -80.0, 80.0)) for each in (query, memory.keys)
    )
    return 1 / (1 + to_query[:, tf.newaxis] * to_keys)
