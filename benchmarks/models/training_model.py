"""A training graph with the names of its step, and made-up data for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["TrainingModel"]


@dataclasses.dataclass(frozen=True, eq=False)
class TrainingModel:
    """A training graph and the names of what a training script runs and feeds.

    Attributes:
        graph: the graph; its `train_op` collection holds the training operation.
        loss: the tensor of the loss, float32 [].
        train_op: the operation that updates the variables and the global step.
        initializer: the operation that initializes all variables.
        draw: makes the values of a step, by the name of their placeholder's operation.
    """

    graph: tf.Graph
    loss: str
    train_op: str
    initializer: str
    draw: Callable[[np.random.Generator], Mapping[str, np.ndarray]]

    def feeds(self, seed: int = 0) -> Iterator[dict[str, np.ndarray]]:
        """Yields endless made-up data that can be learned, by the name of the placeholder's tensor.

        Args:
            seed: of what is drawn; what there is to learn is always the same.
        """
        random = np.random.default_rng(seed)
        while True:
            yield {f"{name}:0": value for name, value in self.draw(random).items()}
