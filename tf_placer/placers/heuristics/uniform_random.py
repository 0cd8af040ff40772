"""Random search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer

__all__ = ["UniformRandom"]


class UniformRandom(Placer):
    """Proposes a uniformly random legal device for every group, without end.

    Placement n, counted from 0 over the whole search, depends on (seed, n) alone.
    """

    name = "random"
    # Random search learns nothing, so the batch only has to keep all cores busy in simulation.
    batch_size = 64

    def __init__(self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0) -> None:
        """Makes a placer; see `Placer`."""
        super().__init__(groups, legal, seed=seed)
        self._num_legal = legal.sum(axis=1)
        self._legal_first = np.argsort(~legal, axis=1, kind="stable").astype(np.int32)
        self._num_observed = 0

    def propose(self, count: int) -> np.ndarray:
        """Draws the next random placements; see `Placer.propose`."""
        placements = np.empty([count, self.groups.num_groups], np.int32)
        each = np.arange(self.groups.num_groups)
        for row, placement in enumerate(placements, self._num_observed):
            generator = np.random.default_rng([self.seed, row])
            placement[:] = self._legal_first[each, generator.integers(self._num_legal)]
        return placements

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Counts the placements; see `Placer.observe`."""
        self._num_observed += len(placements)
