"""Post's policy: a separate softmax for every group, without a network.

References:
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, NeurIPS 2018, equations 2 and 3.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.masking import choose, compute_masked_log_softmax
from tf_placer.placers.learned.policy import FixedGroups, GroupInputs, Policy, PolicySizes

__all__ = ["SoftmaxPolicy"]

# Replaces probability 0, because no gradient could change its infinite logarithm.
_MIN_PROBABILITY = 1e-8


class SoftmaxPolicy(Policy):
    """A policy whose devices depend neither on each other nor on features of the groups.

    Starts uniform over the legal devices. A start placement sets its initial weights instead of a
    prior.

    Attributes:
        legal: bool [num_groups, num_devices], see `__init__`.
    """

    needs_fixed_groups = True

    @classmethod
    def make(
        cls, sizes: PolicySizes, fixed: FixedGroups | None, config: None, seed: int
    ) -> SoftmaxPolicy:
        """Builds a policy that starts uniform or at `fixed.start`; see `Policy.make`."""
        assert fixed is not None
        policy = cls(fixed.legal)
        if fixed.start is not None:
            policy.assign(fixed.start)
        return policy

    def __init__(self, legal: np.ndarray) -> None:
        """Builds a uniform policy.

        Args:
            legal: bool [num_groups, num_devices], true where a group may go; every row has one.
                Its inputs must have the same.
        """
        super().__init__(name="softmax")
        self.num_groups, self.num_devices = legal.shape
        self.legal = np.array(legal, np.bool_)
        self._preferences = self.add_weight(
            name="preferences", shape=legal.shape, initializer="zeros"
        )
        self.built = True

    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Chooses devices; see `Policy.sample`."""
        return choose(tf.convert_to_tensor(self._preferences), inputs.legal, noise)

    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes distributions, float32 [1, num_groups, num_devices]; see `Policy.log_dists`."""
        del devices  # No group's device depends on another's.
        return compute_masked_log_softmax(tf.convert_to_tensor(self._preferences), inputs.legal)

    def probabilities(self) -> np.ndarray:
        """Computes the probability of each device for each group.

        Returns:
            float64 [num_groups, num_devices], rows that sum to 1; 0 where not legal.
        """
        preferences = tf.convert_to_tensor(self._preferences).numpy().astype(np.float64)
        preferences[~self.legal] = -np.inf
        weights = np.exp(preferences - preferences.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)

    def assign(self, probabilities: np.ndarray) -> None:
        """Sets the probabilities of the devices of each group.

        Args:
            probabilities: float [num_groups, num_devices]. Those of illegal devices are ignored,
                and the others are scaled to sum to 1. Legal devices get at least 1e-8, so that all
                stay possible.

        Raises:
            ValueError: the shape is wrong, a probability is negative or not finite, or a group has
                probability 0 on all of its legal devices.
        """
        probabilities = np.asarray(probabilities, np.float64)
        if probabilities.shape != self.legal.shape:
            raise ValueError(
                f"probabilities must be {list(self.legal.shape)}, not {list(probabilities.shape)}"
            )
        if not (np.isfinite(probabilities).all() and (probabilities >= 0).all()):
            raise ValueError("probabilities must be finite and not negative")
        shares = np.where(self.legal, probabilities, 0.0)
        totals = shares.sum(axis=1, keepdims=True)
        if not totals.all():
            group = int(np.flatnonzero(totals == 0)[0])
            raise ValueError(f"group {group} has probability 0 on all of its legal devices")
        self._preferences.assign(np.log(np.maximum(shares / totals, _MIN_PROBABILITY)))
