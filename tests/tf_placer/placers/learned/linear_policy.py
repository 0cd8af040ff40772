"""The simplest policy that reads everything it is given."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import IMPOSSIBLE
from tf_placer.placers.learned.policy import GroupInputs, Policy

__all__ = ["LinearPolicy"]


class LinearPolicy(Policy):
    """Logits of a group's devices: a product of its types, features and edges with weights."""

    def __init__(self, num_groups: int, num_devices: int, num_inputs: int, seed: int = 0) -> None:
        super().__init__(name="linear")
        self.num_groups, self.num_devices = num_groups, num_devices
        self.kernel = self.add_weight(name="kernel", shape=(num_inputs, num_devices))
        self.kernel.assign(np.random.default_rng(seed).normal(size=(num_inputs, num_devices)))
        self.built = True

    def _logits(self, inputs: GroupInputs) -> tf.Tensor:
        received = tf.reduce_sum(inputs.adjacency, axis=1)[:, :, tf.newaxis]
        sent = tf.reduce_sum(inputs.adjacency, axis=2)[:, :, tf.newaxis]
        items = tf.concat([inputs.types, inputs.features, received, sent], axis=2)
        logits = tf.matmul(items, tf.convert_to_tensor(self.kernel)[tf.newaxis])
        return tf.where(inputs.legal, logits, IMPOSSIBLE)

    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        scores = tf.where(inputs.legal, self._logits(inputs) + noise, -np.inf)
        return tf.argmax(scores, axis=2, output_type=tf.int32)

    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        return tf.nn.log_softmax(self._logits(inputs))
