"""An algorithm that learns from every batch, with cross-entropy minimization after several.

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
    """Gives every batch to one algorithm and, every so many samples, lets the best be learned."""

    def __init__(
        self, algorithm: Algorithm, cross_entropy: EliteAlgorithm, *, instead: bool
    ) -> None:
        """Combines two algorithms of one agent.

        Args:
            algorithm: learns from every batch.
            cross_entropy: learns from the best.
            instead: whether `cross_entropy` learns instead of `algorithm` where it is its time, as
                in Post's algorithm 1, or after it, as in EAGLE.

        Raises:
            ValueError: it would be time for `cross_entropy` within a batch.
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
        """Learns from a batch, or from the best, or both; see `Algorithm.learn`."""
        self._cross_entropy.remember(samples)
        is_due = self._cross_entropy.is_due
        updates = []
        if not (is_due and self._instead):
            updates += self._algorithm.learn(samples)
        if is_due:
            updates += self._cross_entropy.update()
        return updates

    def state(self) -> dict[str, np.ndarray]:
        """Gives what both remember; see `Algorithm.state`."""
        return {
            f"{part}/{name}": value
            for part, algorithm in self._parts
            for name, value in algorithm.state().items()
        }

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Lets both remember; see `Algorithm.restore`."""
        for part, algorithm in self._parts:
            start = f"{part}/"
            algorithm.restore(
                {
                    name.removeprefix(start): value
                    for name, value in state.items()
                    if name.startswith(start)
                }
            )

    @property
    def _parts(self) -> tuple[tuple[str, Algorithm], ...]:
        return ("every_batch", self._algorithm), ("best", self._cross_entropy)
