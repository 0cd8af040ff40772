"""REINFORCE: makes placements that were better than expected more probable.

References:
    Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement
    Learning, 1992.
    Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
    equation 3.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.seq2seq import Seq2SeqPolicy

__all__ = ["Reinforce"]


class Reinforce:
    """One Adam step on the policy-gradient loss of a batch of placements."""

    def __init__(
        self, policy: Seq2SeqPolicy, *, learning_rate: float = 1e-3, clip_norm: float = 1.0
    ) -> None:
        """Makes the optimiser of a policy.

        Args:
            policy: what is trained.
            learning_rate: of Adam.
            clip_norm: largest global norm of a gradient; longer ones are shortened to it.
        """
        self._policy = policy
        self._clip_norm = clip_norm
        self._optimizer = tf.keras.optimizers.Adam(learning_rate)
        self._optimizer.build(policy.trainable_variables)

    def update(self, placements: np.ndarray, weights: np.ndarray) -> tuple[float, float, float]:
        """Minimises sum(weights * log p(placements)) by one step.

        Args:
            placements: int32 [count, num_groups], legal; always of the same count, because the
                step is compiled for it.
            weights: float32 [count], (signal - baseline) / (number of placements that count), and
                0 for a placement that does not count.

        Returns:
            The loss, the global norm of its gradient before clipping, and the mean entropy of a
            group's distribution in nats, all before the step.
        """
        loss, norm, entropy = self.step(
            tf.constant(placements, tf.int32), tf.constant(weights, tf.float32)
        )
        return float(loss), float(norm), float(entropy)

    @tf.function(autograph=False)
    def step(
        self, placements: tf.Tensor, weights: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The compiled part of `update`."""
        variables = self._policy.trainable_variables
        with tf.GradientTape() as tape:
            log_probs, entropies = self._policy.log_prob(placements)
            loss = tf.reduce_sum(weights * log_probs)
        gradients = tape.gradient(loss, variables)
        gradients, norm = tf.clip_by_global_norm(gradients, self._clip_norm)
        self._optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss, norm, tf.reduce_mean(entropies) / self._policy.num_groups
