"""Fixed groups by METIS."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.metis import metis_groups
from tf_placer.placers.validators import check_fields

__all__ = ["MetisConfig", "group_by_metis"]


@dataclasses.dataclass(frozen=True)
class MetisConfig:
    """Settings of the partition by METIS, each with its line of help.

    Raises:
        ValueError: `num_groups` is not positive.
    """

    num_groups: Annotated[int, "parts to cut the graph into; one per unit at most"] = 256

    def __post_init__(self) -> None:
        check_fields(self, ("num_groups",), lambda count: count >= 1, "positive")


def group_by_metis(config: MetisConfig, units: GroupGraph, seed: int) -> np.ndarray:
    """Groups units by a partition of their graph.

    Args:
        config: settings.
        units: the units to group.
        seed: of the random numbers.

    Returns:
        int32 [num_units], the group of each unit; groups are numbered by their first unit.
    """
    return metis_groups(units, config.num_groups, seed)
