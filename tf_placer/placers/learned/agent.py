"""The one face of what makes placements and learns: a policy, with or without a learned grouper."""

from __future__ import annotations

import abc

import numpy as np
import tensorflow as tf

from tf_placer.placers.learned.decisions import DecisionSet

__all__ = ["Actions", "Agent"]

#: What was decided for a batch of placements: int32 [count, num_decisions] for each set of
#: decisions, in the order of `Agent.decisions`.
Actions = tuple[tf.Tensor, ...]


class Agent(tf.keras.Model, abc.ABC):
    """Samples decisions, tells how probable they are, and what placement they are.

    A *unit* is what placements are made of: a group of the graph that a placer was given. An agent
    may group units further, so that it decides for many of them at once.

    Attributes:
        num_units: length of a placement.
        num_devices: how many devices there are.
    """

    num_units: int
    num_devices: int

    @abc.abstractmethod
    def sample(self, count: int, seed: tf.Tensor) -> Actions:
        """Samples decisions. Compiled once per `count`.

        Args:
            count: for how many placements; a Python number.
            seed: int64 [2]; placement i depends on (seed[0], seed[1] + i) and the weights alone.
        """

    @abc.abstractmethod
    def decisions(self, actions: Actions) -> tuple[DecisionSet, ...]:
        """Computes how probable decisions are; traceable, differentiable.

        Args:
            actions: what was decided, as from `sample`.
        """

    @abc.abstractmethod
    def placements(self, actions: Actions) -> np.ndarray:
        """Turns decisions into placements.

        Args:
            actions: what was decided, as from `sample`; tensors or arrays.

        Returns:
            int32 [count, num_units], legal: a unit that may not go where its group goes is on the
            first device where it may.
        """

    def forget(self) -> None:
        """Forgets what was learned elsewhere; without such weights there is nothing to forget."""
