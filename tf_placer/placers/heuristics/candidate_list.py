"""The base of placers that propose a fixed list of placements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.placer import Placer

__all__ = ["CandidateList"]


class CandidateList(Placer):
    """Proposes each placement of a fixed list until it was measured.

    Candidates are generated on demand, because some take seconds to generate.
    """

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        candidates: Iterable[np.ndarray],
    ) -> None:
        """Prepares the list.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            candidates: int [num_groups] each, a wanted device per group. A group that may not go
                to its wanted device goes to its first legal device instead; placements that become
                equal by that are proposed once.
        """
        super().__init__(groups, legal, seed=seed)
        self._first_legal = legal.argmax(axis=1)
        self._source = iter(candidates)
        self._waiting: dict[bytes, np.ndarray] = {}
        self._made_or_measured: set[bytes] = set()

    def propose(self, count: int) -> np.ndarray:
        """Proposes the next candidates; see `Placer.propose`."""
        while len(self._waiting) < count and (wanted := next(self._source, None)) is not None:
            is_legal = self.legal[np.arange(self.groups.num_groups), wanted]
            placement = np.where(is_legal, wanted, self._first_legal).astype(np.int32)
            key = placement.tobytes()
            if key not in self._made_or_measured:
                self._made_or_measured.add(key)
                self._waiting[key] = placement
        empty = np.zeros([0, self.groups.num_groups], np.int32)
        return np.concatenate([empty, *(row[None] for row in self._waiting.values())])[:count]

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Removes measured placements from the list; see `Placer.observe`."""
        for placement in placements.astype(np.int32):
            key = placement.tobytes()
            self._made_or_measured.add(key)
            self._waiting.pop(key, None)
