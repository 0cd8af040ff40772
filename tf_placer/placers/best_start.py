"""A placer that measures simple placements first and starts another placer at the best one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.heuristics.simple_starts import simple_starts
from tf_placer.placers.placer import Placer
from tf_placer.placers.update_record import UpdateRecord

__all__ = ["BestStart"]


class BestStart(Placer):
    """A placer that proposes simple placements, and then the placements of another placer.

    It makes the other placer once all simple placements are measured. The other placer observes
    only its own placements.
    """

    def __init__(
        self,
        name: str,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int,
        make: Callable[[np.ndarray | None], Placer],
    ) -> None:
        """Makes the placer without making the other placer yet.

        Args:
            name: the name of the other placer.
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            make: makes the other placer, given its start, int32 [num_groups]; the start is None if
                no simple placement ran.
        """
        super().__init__(groups, legal, seed=seed)
        self.name = name
        self._make = make
        self._starts = simple_starts(groups, legal, seed=seed)
        self._best: np.ndarray | None = None
        self._best_secs = np.inf
        self._placer: Placer | None = None

    def propose(self, count: int) -> np.ndarray:
        """Proposes the next simple placements, or those of the other placer."""
        return (self._placer or self._starts).propose(count)

    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Passes placements to the placer that proposed them; see `Placer.observe`."""
        for number, (placement, measurement) in enumerate(
            zip(placements, measurements, strict=True)
        ):
            if self._placer is not None:
                self._placer.observe(placements[number:], measurements[number:])
                break
            secs = measurement.median_secs
            if secs is not None and secs < self._best_secs:
                self._best, self._best_secs = placement.astype(np.int32), secs
            self._starts.observe(placements[number : number + 1], [measurement])
            if not len(self._starts.propose(1)):
                self._placer = self._make(self._best)
                self.batch_size = self._placer.batch_size

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """The records of the other placer's updates; see `Placer.updates`."""
        return () if self._placer is None else self._placer.updates

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Saves the state of the other placer; see `Placer.save`."""
        if self._placer is not None:
            self._placer.save(directory)
