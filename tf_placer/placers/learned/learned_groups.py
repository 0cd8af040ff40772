"""An agent that learns to group units and to place the groups, both at once.

References:
    Mirhoseini et al., A Hierarchical Model for Device Placement, ICLR 2018.
    Lan, Chen and Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models,
    section III, for the bridge between the two networks.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.learned.agent import Actions, Agent
from tf_placer.placers.learned.decisions import DecisionSet
from tf_placer.placers.learned.embedding import EmbeddingConfig
from tf_placer.placers.learned.grouped_inputs import GroupedInputs
from tf_placer.placers.learned.groupers.bridge import Bridge
from tf_placer.placers.learned.groupers.feed_forward import FeedForwardGrouper
from tf_placer.placers.learned.legality import check_legal, legalize_placements
from tf_placer.placers.learned.noise import gumbel_noise, uniform_noise
from tf_placer.placers.learned.policy import GroupInputs, Policy
from tf_placer.placers.learned.start import Start

__all__ = ["LearnedGroupsAgent"]


class LearnedGroupsAgent(Agent):
    """An agent that makes two sets of decisions: groups of units, then devices of groups.

    The device of a group that no unit chose places nothing and does not count as a decision, though
    the policy has read it when it decides about the next group.

    Attributes:
        grouper: the distribution over groups.
        policy: the distribution over devices.
        bridge: connects the policy to the grouper; None without.
    """

    def __init__(
        self,
        grouper: FeedForwardGrouper,
        policy: Policy,
        units: GroupGraph,
        legal: np.ndarray,
        embedding: EmbeddingConfig,
        *,
        bridge: Bridge | None = None,
        start: Start | None = None,
    ) -> None:
        """Combines a grouper with a policy.

        Args:
            grouper: a grouper for these units.
            policy: a policy for the grouper's number of groups.
            units: the units to group.
            legal: bool [num_units, num_devices], true where a unit may go; every row has one.
            embedding: settings of the features of groups.
            bridge: a bridge of this grouper; None without.
            start: the placement that the policy starts from; None without.

        Raises:
            ValueError: the arguments do not fit each other.
        """
        super().__init__(name="learned_groups")
        check_legal(legal, units.num_groups)
        self.num_units, self.num_devices = legal.shape
        if grouper.num_units != self.num_units:
            raise ValueError(f"the grouper is for {grouper.num_units} units, not {self.num_units}")
        if (policy.num_groups, policy.num_devices) != (grouper.num_groups, self.num_devices):
            raise ValueError(
                f"the policy places {policy.num_groups} groups on {policy.num_devices} devices, "
                f"but there are {grouper.num_groups} and {self.num_devices}"
            )
        self.grouper = grouper
        self.policy = policy
        self.bridge = bridge
        self._grouped_inputs = GroupedInputs(units, legal, grouper.num_groups, embedding, start)
        self._legal = legal
        self.built = True

    @property
    def plain_steps(self) -> tuple[tuple[tf.Variable, float], ...]:
        """The start of the grouper, if it is trained; see `Agent.plain_steps`."""
        return self.grouper.plain_steps

    @tf.function(autograph=False)
    def sample(self, count: int, seed: tf.Tensor) -> Actions:
        """Samples groups of the units and devices of the groups, see `Agent.sample`."""
        # The inverse of the cumulative distribution, which all placements share, takes one random
        # number per unit; Gumbel noise would take one per unit and group.
        cumulative = tf.cumsum(tf.exp(self.grouper.log_dists()), axis=1)
        uniform = uniform_noise(count, seed, [self.num_units])
        chosen = tf.searchsorted(
            cumulative, tf.transpose(uniform) * cumulative[:, -1:], side="right"
        )
        grouping = tf.transpose(tf.minimum(chosen, self.grouper.num_groups - 1))
        # Derive another seed, so that groups and devices have independent random numbers.
        folded = tf.random.experimental.stateless_fold_in(
            tf.stack([seed[0], 0]), tf.constant(1, tf.int64)
        )
        device_seed = tf.stack([folded[0], seed[1]])
        noise = gumbel_noise(count, device_seed, [self.policy.num_groups, self.num_devices])
        return grouping, self.policy.sample(self._inputs(grouping), noise)

    def decisions(self, actions: Actions) -> tuple[DecisionSet, ...]:
        """Makes two decision sets: groups of units, devices of groups; see `Agent.decisions`."""
        grouping, devices = actions
        inputs = self._inputs(grouping)
        return (
            DecisionSet(
                self.grouper.log_dists()[tf.newaxis], grouping, tf.ones([1, self.num_units])
            ),
            DecisionSet(self.policy.log_dists(inputs, devices), devices, inputs.counted),
        )

    def placements(self, actions: Actions) -> np.ndarray:
        """Puts units on the devices of their groups where legal; see `Agent.placements`."""
        grouping, devices = (np.asarray(action) for action in actions)
        return legalize_placements(np.take_along_axis(devices, grouping, axis=1), self._legal)

    def _inputs(self, grouping: tf.Tensor) -> GroupInputs:
        """Builds the inputs of the policy for a batch of placements."""
        inputs = self._grouped_inputs(grouping)
        if self.bridge is None:
            return inputs
        features = self.bridge.join(inputs.features, self.grouper.columns())
        # Empty groups stay all zeros.
        return inputs._replace(features=features * inputs.counted[:, :, tf.newaxis])
