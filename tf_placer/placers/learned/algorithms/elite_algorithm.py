"""What the algorithms that learn from the best samples have in common."""

from __future__ import annotations

import abc

from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update

__all__ = ["EliteAlgorithm"]


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

    @abc.abstractmethod
    def update(self) -> list[Update]:
        """Learns from the best; nothing if no placement ran."""

    @abc.abstractmethod
    def _keep(self, samples: Samples) -> None:
        """Keeps what `update` needs of samples."""
