"""Fixed groups by asynchronous fluid communities."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from graph_passes.grouping.fluid_communities import fluid_groups
from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.validators import check_fields

__all__ = ["FluidConfig", "group_by_communities"]


@dataclasses.dataclass(frozen=True)
class FluidConfig:
    """Settings of fluid communities, each with its line of help.

    Raises:
        ValueError: `num_groups` is not positive.
    """

    num_groups: Annotated[int, "communities to find; one per unit at most"] = 256
    weighted: Annotated[bool, "whether edges count by their bytes"] = True

    def __post_init__(self) -> None:
        check_fields(self, ("num_groups",), lambda count: count >= 1, "positive")


def group_by_communities(config: FluidConfig, units: GroupGraph, seed: int) -> np.ndarray:
    """Groups units by the communities of their graph.

    Args:
        config: settings.
        units: the units to group.
        seed: of the random numbers.

    Returns:
        int32 [num_units], the group of each unit; groups are numbered by their first unit.
    """
    return fluid_groups(units, config.num_groups, seed, weighted=config.weighted)
