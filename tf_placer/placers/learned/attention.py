"""Additive attention.

The hidden layer, tanh(query + key), is the largest thing that a decoder computes. Here it is
1 - 2 r with r = 1 / (1 + exp(2 query) exp(2 key)): exponentials of queries and of keys, and one
division for each pair. The softmax does not notice the 1.

References:
    Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate, ICLR
    2015.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

__all__ = ["AttentionGradient", "Memory", "attend", "attend_gradient"]


class Memory(NamedTuple):
    """What attention looks at; "n" is 1 if all queries look at the same.

    Attributes:
        values: float32 [n, num_items, value_units], what it averages.
        keys: float32 [n, num_items, units], what it compares queries with.
        scorer: float32 [units], the weights of the hidden layer.
    """

    values: tf.Tensor
    keys: tf.Tensor
    scorer: tf.Tensor


class AttentionGradient(NamedTuple):
    """What one step of attention contributes to gradients.

    Attributes:
        query: float32 [count, units], the gradient with respect to the queries.
        keys: float32 [n, num_items, units], that with respect to the keys, still to be multiplied
            with the scorer.
        scorer: float32 [count, units], that with respect to the scorer, of each query.
    """

    query: tf.Tensor
    keys: tf.Tensor
    scorer: tf.Tensor


def attend(query: tf.Tensor, memory: Memory) -> tuple[tf.Tensor, tf.Tensor]:
    """Averages the values, those most whose keys score highest: scorer . tanh(query + key).

    Args:
        query: float32 [count, units].
        memory: what it looks at.

    Returns:
        The weights of the items, float32 [count, num_items], which sum to 1, and the averages,
        float32 [count, value_units].
    """
    shares = tf.nn.softmax(-2 * tf.linalg.matvec(_hidden(query, memory), memory.scorer))
    if memory.values.shape[0] == 1:
        return shares, tf.matmul(shares, memory.values[0])
    return shares, tf.linalg.matvec(memory.values, shares, transpose_a=True)


def attend_gradient(
    query: tf.Tensor, memory: Memory, shares: tf.Tensor, to_average: tf.Tensor
) -> AttentionGradient:
    """Computes the gradient of `attend`, as far as it does not sum over steps.

    The hidden layer is computed anew: kept for all steps of a decoder, its numbers would take
    gigabytes for a few hundred groups.

    Args:
        query: see `attend`.
        memory: see `attend`.
        shares: the weights that `attend` gave.
        to_average: float32 [count, value_units], the gradient with respect to the averages.
    """
    if memory.values.shape[0] == 1:
        to_shares = tf.matmul(to_average, memory.values[0], transpose_b=True)
    else:
        to_shares = tf.linalg.matvec(memory.values, to_average)
    mean = tf.reduce_sum(shares * to_shares, axis=1, keepdims=True)
    to_scores = shares * (to_shares - mean)
    hidden = _hidden(query, memory)
    # The derivative of tanh is 4 (r - r ** 2).
    slopes = 4 * (hidden - hidden * hidden) * to_scores[:, :, tf.newaxis]
    return AttentionGradient(
        query=memory.scorer * tf.reduce_sum(slopes, axis=1),
        keys=tf.reduce_sum(slopes, 0, keepdims=True) if memory.keys.shape[0] == 1 else slopes,
        scorer=-2 * tf.linalg.matvec(hidden, to_scores, transpose_a=True),
    )


def _hidden(query: tf.Tensor, memory: Memory) -> tf.Tensor:
    """Computes the r of the hidden layer, float32 [count, num_items, units]."""
    # Bounds far beyond what a network says: infinity times zero is not a number.
    to_query, to_keys = (
        tf.exp(tf.clip_by_value(2 * each, -80.0, 80.0)) for each in (query, memory.keys)
    )
    return 1 / (1 + to_query[:, tf.newaxis] * to_keys)
