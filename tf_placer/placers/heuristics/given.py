"""A placer of one given placement."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList

__all__ = ["Given", "GivenConfig"]


@dataclasses.dataclass(frozen=True)
class GivenConfig:
    """The setting of the placer, with its line of help."""

    start: Annotated[
        str | None, "the placement: a file (.json), or original, the devices that the graph had"
    ] = None


class Given(CandidateList):
    """Proposes a given placement, so that a plan is measured without a search."""

    name = "given"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        config: GivenConfig = GivenConfig(),
        start: np.ndarray | None = None,
    ) -> None:
        """Prepares the proposal.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`; nothing is random.
            config: the source of the placement, for errors.
            start: int32 [num_groups], the placement.

        Raises:
            ValueError: there is no placement.
        """
        if start is None:
            raise ValueError(f"placer 'given' has no placement: option 'start' is {config.start!r}")
        super().__init__(groups, legal, seed=seed, candidates=[start])
