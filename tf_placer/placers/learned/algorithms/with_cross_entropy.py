"""A combination of an algorithm for every batch with periodic cross-entropy minimization.

References:
    Gao, Chen, Li, Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
    Optimization, NeurIPS 2018, algorithm 1.
    Lan, Chen, Li, EAGLE: Expedited Device Placement with Automatic Grouping for Large Models, PPO
    and cross-entropy minimization.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tf_placer.placers.learned.algorithms.algorithm import Algorithm, Samples, Update
from tf_placer.placers.learned.algorithms.elite_algorithm import EliteAlgorithm

__all__ = ["WithCrossEntropy"]


class WithCrossEntropy(Algorithm):
    """A combination of an algorithm for every batch with one for the elites of several batches."""

    def __init__(
        self, algorithm: Algorithm, cross_entropy: EliteAlgorithm, *, instead: bool
    ) -> None:
        """Combines two algorithms of one agent.

        Args:
            algorithm: learns from every batch.
            cross_entropy: learns from the elites.
            instead: if true, `cross_entropy` learns instead of `algorithm` whenever it is due, as
                in Post's algorithm 1; otherwise after it, as in EAGLE.

        Raises:
            ValueError: `cross_entropy` would be due within a batch.
        """
        if cross_entropy.batch_size % algorithm.batch_size:
            raise ValueError(
                f"ce_samples must be a multiple of batch_size {algorithm.batch_size}, not "
                f"{cross_entropy.batch_size}"
            )
        self.batch_size = algorithm.batch_size
        self._algorithm = algorithm
        self._cross_entropy = cross_entropy
        self._instead = instead

    def learn(self, samples: Samples) -> list[Update]:
        """Learns from the batch, the elites, or both; see `Algorithm.learn`."""
        self._cross_entropy.remember(samples)
        is_due = self._cross_entropy.is_due
        updates = []
        if not (is_due and self._instead):
            updates += self._algorithm.learn(samples)
        if is_due:
            updates += self._cross_entropy.update()
        return updates

    def state(self) -> dict[str, np.ndarray]:
        """Returns the states of both algorithms; see `Algorithm.state`."""
        return {
            f"{part}/{name}": value
            for part, algorithm in self._parts
            for name, value in algorithm.state().items()
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Sets the states of both algorithms; see `Algorithm.restore`."""
        for part, algorithm in self._parts:
            prefix = f"{part}/"
            algorithm.restore(
                {
                    name.removeprefix(prefix): value
                    for name, value in state.items()
                    if name.startswith(prefix)
                }
            )

    @property
    def _parts(self) -> tuple[tuple[str, Algorithm], ...]:
        return ("every_batch", self._algorithm), ("best", self._cross_entropy)
