"""The interface of the algorithms that train an agent."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping

import numpy as np

__all__ = ["Algorithm", "Samples", "Update"]


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Measured placements, in the order in which they were sampled.

    Attributes:
        actions: int32 [count, num_decisions] for each set of decisions, as from `Agent.sample`.
        advantages: float64 [count], reward minus baseline; larger is better.
        counted: bool [count], false for a sample that must not contribute to a gradient.
        step_secs: float64 [count], infinite for a failure.
    """

    actions: tuple[np.ndarray, ...]
    advantages: np.ndarray
    counted: np.ndarray
    step_secs: np.ndarray


@dataclasses.dataclass(frozen=True)
class Update:
    """Statistics of one update.

    Attributes:
        kind: the kind of update, such as "reinforce", "ppo" or "ce".
        loss: the minimized loss, before the first step.
        gradient_norm: global norm of the gradient before clipping, of the first step or of a step
            that was skipped because its norm is not finite; None for an update without gradients.
        entropy: mean entropy of a counted decision in nats, before the update. Every set of
            decisions has the same weight, however many decisions it has.
        divergence: mean divergence of a counted decision, D(before || after), in nats; sets have
            the same weight.
    """

    kind: str
    loss: float | None
    gradient_norm: float | None
    entropy: float
    divergence: float


class Algorithm(abc.ABC):
    """An algorithm that trains an agent with batches of samples.

    Its state depends on its settings and its batches only.

    Attributes:
        batch_size: samples per batch.
    """

    batch_size: int

    @abc.abstractmethod
    def learn(self, samples: Samples) -> list[Update]:
        """Updates the agent.

        Args:
            samples: `batch_size` samples that the agent drew with its present weights.

        Returns:
            The statistics of the updates in order; empty if no sample counts.
        """

    def state(self) -> dict[str, np.ndarray]:
        """Returns the state from earlier batches by name; empty for a stateless algorithm."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:  # noqa: B027 (most are stateless)
        """Sets the state.

        Args:
            state: from `state` of an algorithm with the same settings.
        """
