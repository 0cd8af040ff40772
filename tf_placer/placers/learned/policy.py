"""The one face of the networks that choose a device for each group."""

from __future__ import annotations

import abc
from typing import NamedTuple

import tensorflow as tf

__all__ = ["GroupInputs", "Policy"]


class GroupInputs(NamedTuple):
    """What a policy reads about groups; "n" is 1 if all placements of a batch share the groups.

    Attributes:
        types: float32 [n, num_groups, num_types], the share of each operation type in each group.
        features: float32 [n, num_groups, num_features], whatever else is known of each group.
        adjacency: float32 [n, num_groups, num_groups], what each group (row) sends to each other
            one; 0 where it sends nothing.
        legal: bool [n, num_groups, num_devices], true where a group may go; every row has one.
        counted: float32 [n, num_groups], 0 for an empty group, 1 for the others.
    """

    types: tf.Tensor
    features: tf.Tensor
    adjacency: tf.Tensor
    legal: tf.Tensor
    counted: tf.Tensor


class Policy(tf.keras.Model, abc.ABC):
    """A distribution over placements of groups, with the trainable weights that define it.

    Attributes:
        num_groups: how many groups it places.
        num_devices: how many devices it chooses from.
    """

    num_groups: int
    num_devices: int

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
        """The distribution of each group's device; traceable, differentiable.

        Args:
            inputs: what is known about the groups.
            devices: int32 [count, num_groups], what was chosen.

        Returns:
            float32 [count, num_groups, num_devices], log-probabilities given the choices for the
            groups before; [1, ...] where they depend neither on the choices nor on the inputs of
            one placement. Illegal devices are at `decisions.IMPOSSIBLE`.
        """
