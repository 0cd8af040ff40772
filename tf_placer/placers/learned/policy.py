"""The interface of networks that choose a device for each group."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["FixedGroups", "GroupInputs", "Policy", "PolicySizes"]


class PolicySizes(NamedTuple):
    """The sizes of the inputs and outputs of a policy.

    Attributes:
        num_groups: see `Policy`.
        num_devices: see `Policy`.
        num_types: see `GroupInputs`.
        num_features: see `GroupInputs`; 0 for a policy that reads none.
    """

    num_groups: int
    num_devices: int
    num_types: int
    num_features: int


@dataclasses.dataclass(frozen=True, eq=False)
class FixedGroups:
    """Groups that are the same in every placement.

    Attributes:
        groups: the groups.
        legal: bool [num_groups, num_devices], true where a group may go; every row has one.
        device_secs: float [num_groups, num_devices], seconds of each group on each device; None
            if they are unknown or the policy does not read them.
        edge_secs: float [num_edges], seconds to send along each edge; None as above.
        device_fill: float [num_groups, num_devices, 2], the share of each group in the memory
            of each device; None as above.
        start: float [num_groups, num_devices], initial probabilities of devices; None for the
            distribution of the initial weights.
    """

    groups: GroupGraph
    legal: np.ndarray
    device_secs: np.ndarray | None = None
    edge_secs: np.ndarray | None = None
    device_fill: np.ndarray | None = None
    start: np.ndarray | None = None


class GroupInputs(NamedTuple):
    """The inputs of a policy; "n" is 1 if all placements of a batch share the groups.

    Attributes:
        types: float32 [n, num_groups, num_types], the share of each operation type in each group.
        features: float32 [n, num_groups, num_features], other features of each group.
        adjacency: float32 [n, num_groups, num_groups], the weight of the edge from each group
            (row) to each other one; 0 without an edge.
        legal: bool [n, num_groups, num_devices], true where a group may go; every row has one.
        counted: float32 [n, num_groups], 0 for an empty group, 1 for the others.
        prior: float32 [n, num_groups, num_devices], added to the scores of devices, so that the
            policy starts near a placement; None without.
    """

    types: tf.Tensor
    features: tf.Tensor
    adjacency: tf.Tensor
    legal: tf.Tensor
    counted: tf.Tensor
    prior: tf.Tensor | None = None


class Policy(tf.keras.Model, abc.ABC):
    """A distribution over placements of groups, with the trainable weights that define it.

    Attributes:
        needs_fixed_groups: whether groups must be the same in every placement.
        reads_costs: whether it reads the costs of groups on devices, where known.
        num_groups: number of groups that it places.
        num_devices: number of devices that it chooses from.
    """

    needs_fixed_groups: ClassVar[bool] = False
    reads_costs: ClassVar[bool] = False

    num_groups: int
    num_devices: int

    @classmethod
    def make(cls, sizes: PolicySizes, fixed: FixedGroups | None, config: Any, seed: int) -> Policy:
        """Builds a policy with its initial weights; by default from its sizes.

        Args:
            sizes: the sizes of its inputs and outputs.
            fixed: the groups; None where a grouper makes new ones for every placement.
            config: settings of the policy; None if it has none.
            seed: seeds the initial weights.
        """
        del fixed
        return cls(*sizes, config, seed)

    @abc.abstractmethod
    def sample(self, inputs: GroupInputs, noise: tf.Tensor) -> tf.Tensor:
        """Chooses devices; traceable, without state.

        The choice is the largest sum of log-probability and noise among the legal devices: with
        Gumbel noise a sample of the distribution, with zeros the most probable device of every
        group given the choices before it.

        Args:
            inputs: the features of the groups.
            noise: float32 [count, num_groups, num_devices].

        Returns:
            int32 [count, num_groups].
        """

    @abc.abstractmethod
    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes the distribution of each group's device; traceable, differentiable.

        Args:
            inputs: the features of the groups.
            devices: int32 [count, num_groups], the choices.

        Returns:
            float32 [count, num_groups, num_devices], log-probabilities given the choices for the
            groups before; [1, ...] where they depend neither on the choices nor on the inputs of
            one placement. Illegal devices are at `decisions.IMPOSSIBLE`.
        """

    def forget(self) -> None:
        """Resets pretrained weights; does nothing for a policy without them."""
