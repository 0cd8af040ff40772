"""The one face of the networks that choose a device for each group."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar, NamedTuple

import numpy as np
import tensorflow as tf

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["FixedGroups", "GroupInputs", "Policy", "PolicySizes"]


class PolicySizes(NamedTuple):
    """How large the inputs and outputs of a policy are.

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
        device_secs: float [num_groups, num_devices], what they take; None if that is not known, or
            the policy does not read it.
        edge_secs: float [num_edges], what it takes to send along the edges; None as above.
        device_fill: float [num_groups, num_devices, 2], what they hold of the memory of devices;
            None as above.
        start: float [num_groups, num_devices], how probable devices are at first; None for what
            the policy makes of its initial weights.
    """

    groups: GroupGraph
    legal: np.ndarray
    device_secs: np.ndarray | None = None
    edge_secs: np.ndarray | None = None
    device_fill: np.ndarray | None = None
    start: np.ndarray | None = None


class GroupInputs(NamedTuple):
    """What a policy reads about groups; "n" is 1 if all placements of a batch share the groups.

    Attributes:
        types: float32 [n, num_groups, num_types], the share of each operation type in each group.
        features: float32 [n, num_groups, num_features], whatever else is known of each group.
        adjacency: float32 [n, num_groups, num_groups], what each group (row) sends to each other
            one; 0 where it sends nothing.
        legal: bool [n, num_groups, num_devices], true where a group may go; every row has one.
        counted: float32 [n, num_groups], 0 for an empty group, 1 for the others.
        prior: float32 [n, num_groups, num_devices], added to the scores of devices, so that the
            policy starts near a placement; None for nothing.
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
        needs_fixed_groups: whether it is for groups that are the same in every placement.
        reads_costs: whether it reads what groups take on devices, where that is known.
        num_groups: how many groups it places.
        num_devices: how many devices it chooses from.
    """

    needs_fixed_groups: ClassVar[bool] = False
    reads_costs: ClassVar[bool] = False

    num_groups: int
    num_devices: int

    @classmethod
    def make(cls, sizes: PolicySizes, fixed: FixedGroups | None, config: Any, seed: int) -> Policy:
        """Makes a policy with its initial weights; a network that is made of its sizes.

        Args:
            sizes: of its inputs and outputs.
            fixed: the groups; None where a grouper makes new ones for every placement.
            config: settings of the policy; None if it has none.
            seed: of the initial weights.
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
            inputs: what is known about the groups.
            noise: float32 [count, num_groups, num_devices].

        Returns:
            int32 [count, num_groups].
        """

    @abc.abstractmethod
    def log_dists(self, inputs: GroupInputs, devices: tf.Tensor) -> tf.Tensor:
        """Computes the distribution of each group's device; traceable, differentiable.

        Args:
            inputs: what is known about the groups.
            devices: int32 [count, num_groups], what was chosen.

        Returns:
            float32 [count, num_groups, num_devices], log-probabilities given the choices for the
            groups before; [1, ...] where they depend neither on the choices nor on the inputs of
            one placement. Illegal devices are at `decisions.IMPOSSIBLE`.
        """

    def forget(self) -> None:
        """Forgets what was learned elsewhere; without such weights there is nothing to forget."""
