"""A placer of coarse groups where placements are of the groups inside them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord

__all__ = ["LiftedPlacer"]


class LiftedPlacer(Placer):
    """Proposes what another placer does with coarse groups."""

    def __init__(
        self, placer: Placer, groups: GroupGraph, legal: np.ndarray, clusters: np.ndarray
    ) -> None:
        """Makes no placer of its own.

        Args:
            placer: of the coarse groups.
            groups: the groups inside them.
            legal: see `Placer`; where a coarse group may go, the groups in it may.
            clusters: int [num_groups], the coarse group of each group; none is empty.
        """
        super().__init__(groups, legal, seed=placer.seed)
        self.name, self.batch_size = placer.name, placer.batch_size
        self._placer = placer
        self._clusters = clusters
        _, self._firsts = np.unique(clusters, return_index=True)

    def propose(self, count: int) -> np.ndarray:
        """Placements with every coarse group on one device; see `Placer.propose`."""
        return self._placer.propose(count)[:, self._clusters]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Lets the placer observe; see `Placer.observe`."""
        self._placer.observe(placements[:, self._firsts], measurements)
        self.batch_size = self._placer.batch_size

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """What the placer's updates saw and did; see `Placer.updates`."""
        return self._placer.updates

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Lets the placer write what it has learned; see `Placer.save`."""
        self._placer.save(directory)
