"""The bridge from a learned grouper to the policy: groups are told by the grouper's own weights.

A recurrent network reads, group by group, the weights with which the grouper chooses it, and what
it writes becomes features of the groups. So what the policy learns reaches the grouper, which
otherwise has its own decisions to learn from only.

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
        """Makes the network with its initial weights.

        Args:
            grouper: whose weights it reads.
            config: says whether what it writes replaces the features of the groups.
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
        """Adds what the network writes to features, or puts it in their place.

        Args:
            features: float32 [n, num_groups, num_features].
            columns: float32 [num_groups, column_size], of the grouper.

        Returns:
            float32 [n, num_groups, num_features + bridge_units], or without num_features.
        """
        written = self._lstm(columns[tf.newaxis])
        shape = tf.concat([tf.shape(features)[:1], tf.shape(written)[1:]], axis=0)
        written = tf.broadcast_to(written, shape)
        return written if self._replaces else tf.concat([features, written], axis=2)
