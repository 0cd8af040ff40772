"""An adapter that expands the placements of a placer of coarse groups to finer groups."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord

__all__ = ["CoarseToFinePlacer"]


class CoarseToFinePlacer(Placer):
    """A placer whose placements are those of a placer of coarse groups, expanded."""

    def __init__(
        self, placer: Placer, groups: GroupGraph, legal: np.ndarray, clusters: np.ndarray
    ) -> None:
        """Wraps a placer.

        Args:
            placer: the placer of the coarse groups.
            groups: the finer groups.
            legal: see `Placer`; a device that a coarse group may use is legal for all its groups.
            clusters: int [num_groups], the coarse group of each group; no coarse group is empty.
        """
        super().__init__(groups, legal, seed=placer.seed)
        self.name, self.batch_size = placer.name, placer.batch_size
        self._placer = placer
        self._clusters = clusters
        _, self._firsts = np.unique(clusters, return_index=True)

    def propose(self, count: int) -> np.ndarray:
        """Proposes placements with each coarse group on one device; see `Placer.propose`."""
        return self._placer.propose(count)[:, self._clusters]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Passes the placements of the coarse groups on; see `Placer.observe`."""
        self._placer.observe(placements[:, self._firsts], measurements)
        self.batch_size = self._placer.batch_size

    @property
    def lacks_time(self) -> bool:
        """True if the placer has ended for want of time; see `Placer.lacks_time`."""
        return self._placer.lacks_time

    def explain_end(self) -> str:
        """Explains why the placer has ended; see `Placer.explain_end`."""
        return self._placer.explain_end()

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """The records of the placer's updates; see `Placer.updates`."""
        return self._placer.updates

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Saves the state of the placer; see `Placer.save`."""
        self._placer.save(directory)
