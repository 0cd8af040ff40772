"""What every model gives: a training graph, the names of its step, and data for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["TrainingModel"]


class TrainingModel(Protocol):
    """A training graph and the names of what a training script runs and feeds."""

    @property
    def graph(self) -> tf.Graph:
        """The graph; its `train_op` collection holds the training operation."""

    @property
    def loss(self) -> str:
        """The tensor of the loss, float32 []."""

    @property
    def train_op(self) -> str:
        """The operation that updates the variables and the global step."""

    @property
    def initializer(self) -> str:
        """The operation that initialises all variables."""

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Endless made-up data that can be learnt.

        Args:
            seed: of the data.

        Yields:
            The values of a step by the name of their placeholder.
        """
