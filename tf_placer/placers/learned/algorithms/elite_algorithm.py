"""What the algorithms that learn from the best samples have in common."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import numpy as np

from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update

__all__ = ["EliteAlgorithm", "Sample"]

#: What a step took, infinite for a failure, and what was decided: int32 [num_decisions] per set.
Sample = tuple[float, tuple[np.ndarray, ...]]


class EliteAlgorithm(Algorithm):
    """Remembers samples and, whenever there are `batch_size` more, learns from the best.

    Samples may be remembered in batches of any size, as they come to another algorithm that uses
    them as well.
    """

    def __init__(self, batch_size: int) -> None:
        """Starts without samples."""
        self.batch_size = batch_size
        self.num_samples = 0

    def learn(self, samples: Samples) -> list[Update]:
        """Remembers the samples and updates if it is time; see `Algorithm.learn`."""
        self.remember(samples)
        return self.update() if self.is_due else []

    @property
    def is_due(self) -> bool:
        """Whether it is time for an update."""
        return self.num_samples % self.batch_size == 0

    def remember(self, samples: Samples) -> None:
        """Takes note of samples."""
        self.num_samples += len(samples.step_secs)
        self._keep(samples)

    def state(self) -> dict[str, np.ndarray]:
        """Gives the samples that it keeps; see `Algorithm.state`."""
        kept = self._remembered()
        state = {
            "num_samples": np.array(self.num_samples),
            "secs": np.array([secs for secs, _ in kept], np.float64),
        }
        each = enumerate(zip(*(rows for _, rows in kept), strict=True))
        return state | {f"actions/{number}": np.stack(rows) for number, rows in each}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Keeps the samples of another one; see `Algorithm.restore`."""
        self.num_samples = int(state["num_samples"])
        sets: list[np.ndarray] = []
        while f"actions/{len(sets)}" in state:
            sets.append(state[f"actions/{len(sets)}"])
        actions = zip(*sets, strict=True)
        self._take_over(list(zip(state["secs"].tolist(), actions, strict=True)))

    @abc.abstractmethod
    def update(self) -> list[Update]:
        """Learns from the best; nothing if no placement ran."""

    @abc.abstractmethod
    def _keep(self, samples: Samples) -> None:
        """Keeps what `update` needs of samples."""

    @abc.abstractmethod
    def _remembered(self) -> list[Sample]:
        """Gives the samples that are kept."""

    @abc.abstractmethod
    def _take_over(self, kept: list[Sample]) -> None:
        """Keeps these samples and no others."""
