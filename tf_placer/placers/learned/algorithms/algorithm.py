"""The one face of the ways to learn from samples."""

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
    """What one update did.

    Attributes:
        kind: what updated, such as "reinforce", "ppo" or "ce".
        loss: what it minimized, before its first step.
        gradient_norm: global norm of the first step's gradient before clipping, or of one that is
            not finite, whose step was not taken; None without one.
        entropy: mean entropy of a counted decision in nats, before the update. Every set of
            decisions weighs the same, however many decisions it has.
        divergence: mean divergence of a counted decision, D(before || after), in nats; sets weigh
            the same.
    """

    kind: str
    loss: float | None
    gradient_norm: float | None
    entropy: float
    divergence: float


class Algorithm(abc.ABC):
    """Learns from batches of samples.

    Its state is a function of its construction and of the batches that it was given.

    Attributes:
        batch_size: samples per batch.
    """

    batch_size: int

    @abc.abstractmethod
    def learn(self, samples: Samples) -> list[Update]:
        """Updates the agent.

        Args:
            samples: `batch_size` samples that the agent drew as it is now.

        Returns:
            What was done, in order; nothing where no sample counts.
        """

    def state(self) -> dict[str, np.ndarray]:
        """Gives what it remembers of earlier batches, by name; nothing where that is nothing."""
        return {}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:  # noqa: B027 (most have none)
        """Remembers what `state` gave.

        Args:
            state: of an algorithm with the same settings.
        """
