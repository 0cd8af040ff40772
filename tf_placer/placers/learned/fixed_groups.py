"""An agent that places groups which are the same in every placement."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.agent import Actions, Agent
from tf_placer.placers.learned.decisions import DecisionSet
from tf_placer.placers.learned.legality import check_legal, legalize_placements
from tf_placer.placers.learned.noise import gumbel_noise
from tf_placer.placers.learned.policy import GroupInputs, Policy

__all__ = ["FixedGroupsAgent"]


class FixedGroupsAgent(Agent):
    """An agent that makes one set of decisions: the device of each group.

    Attributes:
        policy: the distribution over devices.
    """

    def __init__(
        self, policy: Policy, inputs: GroupInputs, membership: np.ndarray, legal: np.ndarray
    ) -> None:
        """Combines a policy with groups.

        Args:
            policy: a policy for these groups and devices.
            inputs: the inputs of the policy; the first dimensions are 1.
            membership: int32 [num_units], the group of each unit.
            legal: bool [num_units, num_devices], true where a unit may go; every row has one.

        Raises:
            ValueError: the arguments do not fit each other.
        """
        super().__init__(name="fixed_groups")
        check_legal(legal, len(membership))
        self.num_units, self.num_devices = legal.shape
        if (policy.num_groups, policy.num_devices) != inputs.legal.shape[1:]:
            raise ValueError(
                f"the policy places {policy.num_groups} groups on {policy.num_devices} devices, "
                f"but its inputs are of {inputs.legal.shape[1]} and {inputs.legal.shape[2]}"
            )
        if policy.num_devices != self.num_devices:
            raise ValueError(
                f"the policy is for {policy.num_devices} devices, not {self.num_devices}"
            )
        if membership.min() < 0 or membership.max() >= policy.num_groups:
            raise ValueError(f"membership must be in [0, {policy.num_groups})")
        self.policy = policy
        self._inputs = inputs
        self._membership = membership
        self._legal = legal
        self.built = True

    @tf.function(autograph=False)
    def sample(self, count: int, seed: tf.Tensor) -> Actions:
        """Samples the devices of the groups, see `Agent.sample`."""
        noise = gumbel_noise(count, seed, [self.policy.num_groups, self.num_devices])
        return (self.policy.sample(self._inputs, noise),)

    def decisions(self, actions: Actions) -> tuple[DecisionSet, ...]:
        """Makes one set of decisions: the devices of the groups; see `Agent.decisions`."""
        (devices,) = actions
        log_dists = self.policy.log_dists(self._inputs, devices)
        return (DecisionSet(log_dists, devices, self._inputs.counted),)

    def placements(self, actions: Actions) -> np.ndarray:
        """Puts units on the devices of their groups where legal; see `Agent.placements`."""
        (devices,) = actions
        return legalize_placements(np.asarray(devices)[:, self._membership], self._legal)

    def forget(self) -> None:
        """Resets pretrained weights of the policy; see `Agent.forget`."""
        self.policy.forget()
