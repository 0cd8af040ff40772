"""The base class of algorithms that learn from the fastest samples, the elites."""

from __future__ import annotations

import abc
from collections.abc import Mapping

import numpy as np

from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update

__all__ = ["EliteAlgorithm", "Sample"]

#: Step time, infinite for a failure, and decisions, int32 [num_decisions] per set.
Sample = tuple[float, tuple[np.ndarray, ...]]


class EliteAlgorithm(Algorithm):
    """An algorithm that collects samples, and learns from the elites after every `batch_size`.

    `remember` accepts batches of any size, so that another algorithm can use the same batches.
    """

    def __init__(self, batch_size: int) -> None:
        """Starts without samples."""
        self.batch_size = batch_size
        self.num_samples = 0

    def learn(self, samples: Samples) -> list[Update]:
        """Stores the samples, and updates the agent if an update is due; see `Algorithm.learn`."""
        self.remember(samples)
        return self.update() if self.is_due else []

    @property
    def is_due(self) -> bool:
        """True if an update is due."""
        return self.num_samples % self.batch_size == 0

    def remember(self, samples: Samples) -> None:
        """Stores samples without an update."""
        self.num_samples += len(samples.step_secs)
        self._add(samples)

    def state(self) -> dict[str, np.ndarray]:
        """Returns the stored samples; see `Algorithm.state`."""
        stored = self._list_samples()
        state = {
            "num_samples": np.array(self.num_samples),
            "secs": np.array([secs for secs, _ in stored], np.float64),
        }
        each = enumerate(zip(*(rows for _, rows in stored), strict=True))
        return state | {f"actions/{number}": np.stack(rows) for number, rows in each}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Replaces the stored samples; see `Algorithm.restore`."""
        self.num_samples = int(state["num_samples"])
        sets: list[np.ndarray] = []
        while f"actions/{len(sets)}" in state:
            sets.append(state[f"actions/{len(sets)}"])
        actions = zip(*sets, strict=True)
        self._set_samples(list(zip(state["secs"].tolist(), actions, strict=True)))

    @abc.abstractmethod
    def update(self) -> list[Update]:
        """Learns from the elites; returns no update if no placement ran."""

    @abc.abstractmethod
    def _add(self, samples: Samples) -> None:
        """Stores the samples that `update` needs."""

    @abc.abstractmethod
    def _list_samples(self) -> list[Sample]:
        """Returns the stored samples."""

    @abc.abstractmethod
    def _set_samples(self, samples: list[Sample]) -> None:
        """Replaces the stored samples."""
