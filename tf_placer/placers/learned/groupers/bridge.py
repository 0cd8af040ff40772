"""The bridge from a learned grouper to the policy: group features from the grouper's weights.

A recurrent network reads, group by group, the weights with which the grouper chooses the group. Its
outputs become features of the groups, so that gradients of the policy reach the grouper, which
otherwise learns from its own decisions only.

References:
    Lan, Chen and Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    abstract, for the idea; the network is ours.
"""

from __future__ import annotations

import tensorflow as tf

from tf_placer.placers.learned.groupers.feed_forward import FeedForwardConfig, FeedForwardGrouper
from tf_placer.placers.learned.weights import glorot, orthogonal, seeds

__all__ = ["Bridge"]


class Bridge(tf.keras.Model):
    """An LSTM over the columns of the grouper's last layer."""

    def __init__(
        self, grouper: FeedForwardGrouper, config: FeedForwardConfig, *, seed: int = 0
    ) -> None:
        """Creates the network with its initial weights.

        Args:
            grouper: the grouper whose weights are the input.
            config: settings; `bridge` "replace" drops the other features of the groups.
            seed: of the initial weights.
        """
        super().__init__(name="bridge")
        own_seeds = seeds(seed)
        self._replaces = config.bridge == "replace"
        self._lstm = tf.keras.layers.LSTM(
            config.bridge_units,
            return_sequences=True,
            kernel_initializer=glorot(own_seeds),
            recurrent_initializer=orthogonal(own_seeds),
        )
        self._lstm.build((1, grouper.num_groups, grouper.column_size))
        self.built = True

    def join(self, features: tf.Tensor, columns: tf.Tensor) -> tf.Tensor:
        """Appends the outputs of the network to the features, or replaces the features.

        Args:
            features: float32 [n, num_groups, num_features].
            columns: float32 [num_groups, column_size], from `FeedForwardGrouper.columns`.

        Returns:
            float32 [n, num_groups, num_features + bridge_units], or without num_features.
        """
        outputs = self._lstm(columns[tf.newaxis])
        shape = tf.concat([tf.shape(features)[:1], tf.shape(outputs)[1:]], axis=0)
        outputs = tf.broadcast_to(outputs, shape)
        return outputs if self._replaces else tf.concat([features, outputs], axis=2)
