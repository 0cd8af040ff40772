"""Placers that know all their proposals from the start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer

__all__ = ["CandidateList"]


class CandidateList(Placer):
    """Proposes a fixed list of placements, each until it was measured, and then nothing more."""

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        candidates: Iterable[np.ndarray],
    ) -> None:
        """Makes the list.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            candidates: int [num_groups] each, a wanted device per group. A group that may not go
                where it is wanted goes to its first legal device instead; placements that are then
                the same are proposed once.
        """
        super().__init__(groups, legal, seed=seed)
        first_legal = legal.argmax(axis=1)
        each = np.arange(groups.num_groups)
        self._candidates: dict[bytes, np.ndarray] = {}
        for wanted in candidates:
            placement = np.where(legal[each, wanted], wanted, first_legal).astype(np.int32)
            self._candidates.setdefault(placement.tobytes(), placement)

    def propose(self, count: int) -> np.ndarray:
        """The next candidates; see `Placer.propose`."""
        empty = np.zeros([0, self.groups.num_groups], np.int32)
        return np.concatenate([empty, *(row[None] for row in self._candidates.values())])[:count]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Strikes measured placements off the list; see `Placer.observe`."""
        for placement in placements.astype(np.int32):
            self._candidates.pop(placement.tobytes(), None)
