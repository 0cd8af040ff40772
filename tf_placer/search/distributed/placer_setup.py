"""The arguments of a learned placer, for this process and others."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers import make_placer
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["PlacerSetup"]


@dataclasses.dataclass(frozen=True, eq=False)
class PlacerSetup:
    """The arguments of `make_placer` for a learned placer.

    Attributes:
        name: name of the placer.
        groups, legal, seed, options, problem, start, max_samples: see `make_placer`.
    """

    name: str
    groups: GroupGraph
    legal: np.ndarray
    seed: int
    options: Mapping[str, object]
    problem: PlacementProblem | None = None
    start: np.ndarray | None = None
    max_samples: int | None = None

    def make_placer(self) -> Placer:
        """Makes the placer, identically in every process."""
        return make_placer(
            self.name,
            self.groups,
            self.legal,
            seed=self.seed,
            options=self.options,
            problem=self.problem,
            start=self.start,
            max_samples=self.max_samples,
        )
