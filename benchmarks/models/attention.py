"""The attention of recurrent models.

References:
    Bahdanau, Cho, Bengio: Neural Machine Translation by Jointly Learning to Align and Translate,
    2015 (additive scores).
"""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["AdditiveAttention"]


class AdditiveAttention:
    """Additive attention to what an encoder says."""

    def __init__(self, encoded: tf.Tensor) -> None:
        """Makes the variables, in the current scope, and the keys of all steps at once.

        Args:
            encoded: float32 [batch, source_steps, units].
        """
        units = int(encoded.shape[2])
        self._encoded = encoded
        self._query_weights = tf1.get_variable("query", [units, units])
        self._score_weights = tf1.get_variable("score", [units])
        flat = tf.matmul(
            tf.reshape(encoded, [-1, units]), tf1.get_variable("memory", [units, units])
        )
        self._keys = tf.reshape(flat, encoded.shape, name="keys")

    def context(self, hidden: tf.Tensor) -> tf.Tensor:
        """Averages what the encoder says, weighted by what is asked; float32 [batch, units]."""
        query = tf.matmul(hidden, self._query_weights, name="query")
        added = tf.tanh(self._keys + tf.expand_dims(query, 1))
        alignments = tf.nn.softmax(tf.reduce_sum(added * self._score_weights, axis=2))
        return tf.reduce_sum(tf.expand_dims(alignments, 2) * self._encoded, axis=1)
