"""The interface of trainable placement models: a policy, with or without a learned grouper."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import DecisionSet

__all__ = ["Actions", "Agent"]

#: The decisions for a batch of placements: int32 [count, num_decisions] for each set of
#: decisions, in the order of `Agent.decisions`.
Actions = tuple[tf.Tensor, ...]


class Agent(tf.keras.Model, abc.ABC):
    """Samples decisions, computes their probabilities, and turns them into placements.

    A *unit* is the smallest thing that a placement assigns to a device: a group of the graph that
    the placer gets. An agent may group units further, to decide for many of them at once.

    Attributes:
        num_units: length of a placement.
        num_devices: number of devices.
    """

    num_units: int
    num_devices: int

    @property
    def plain_steps(self) -> tuple[tuple[tf.Variable, float], ...]:
        """The weights that change by plain steps along the gradient, with their learning rates.

        Adam would change each of these by a step of the same size, also those of which a batch says
        next to nothing.
        """
        return ()

    @abc.abstractmethod
    def sample(self, count: int, seed: tf.Tensor) -> Actions:
        """Samples decisions. Compiled once per `count`.

        Args:
            count: number of placements; a Python number.
            seed: int64 [2]; placement i depends on (seed[0], seed[1] + i) and the weights alone.
        """

    @abc.abstractmethod
    def decisions(self, actions: Actions) -> tuple[DecisionSet, ...]:
        """Computes the distributions of decisions; traceable, differentiable.

        Args:
            actions: the decisions, as from `sample`.
        """

    @abc.abstractmethod
    def placements(self, actions: Actions) -> np.ndarray:
        """Turns decisions into placements.

        Args:
            actions: the decisions, as from `sample`; tensors or arrays.

        Returns:
            int32 [count, num_units], legal: a unit that may not run on its group's device gets
            its first legal device.
        """

    def forget(self) -> None:
        """Resets pretrained weights; does nothing for an agent without them."""
