"""Groupers that look at the graph once: what a policy decides about stays the same."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from graph_passes.grouping.fluid_communities import fluid_groups
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.metis import metis_groups

__all__ = ["FluidConfig", "MetisConfig", "fixed_groups"]


@dataclasses.dataclass(frozen=True)
class MetisConfig:
    """Settings of the partition by METIS, each with its line of help.

    Raises:
        ValueError: `num_groups` is not positive.
    """

    num_groups: Annotated[int, "parts to cut the graph into; one per unit at most"] = 256

    def __post_init__(self) -> None:
        _check(self.num_groups)


@dataclasses.dataclass(frozen=True)
class FluidConfig:
    """Settings of fluid communities, each with its line of help.

    Raises:
        ValueError: `num_groups` is not positive.
    """

    num_groups: Annotated[int, "communities to find; one per unit at most"] = 256
    weighted: Annotated[bool, "whether edges count by their bytes"] = True

    def __post_init__(self) -> None:
        _check(self.num_groups)


def fixed_groups(
    config: MetisConfig | FluidConfig | None, units: GroupGraph, *, seed: int
) -> np.ndarray:
    """The group of each unit.

    Args:
        config: which grouper, and its settings; None for one group per unit.
        units: what is grouped.
        seed: of the grouper's random choices.

    Returns:
        int32 [num_units], groups numbered by their first unit.
    """
    if isinstance(config, MetisConfig):
        return metis_groups(units, config.num_groups, seed)
    if isinstance(config, FluidConfig):
        return fluid_groups(units, config.num_groups, seed, weighted=config.weighted)
    return np.arange(units.num_groups, dtype=np.int32)


def _check(num_groups: int) -> None:
    if num_groups < 1:
        raise ValueError(f"num_groups must be positive, not {num_groups}")
