"""The analysis of every graph before it is placed."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.default_groups import default_groups
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.grouping import LEFT_ALONE, Grouping
from graph_passes.grouping.model_rules import seal_blocks
from graph_passes.grouping.single_consumer import merge_single_consumers
from graph_passes.grouping.single_groups import single_groups
from graph_passes.op_graph import OpGraph
from graph_passes.placement import assignment_of, operation_groups
from graph_passes.util.garbage_collection import paused_garbage_collection
from graph_passes.util.messages import quoted

__all__ = ["GRANULARITIES", "GroupedGraph", "group_operations"]

_COARSE = "coarse"
#: The names that `group_operations` takes.
GRANULARITIES = (_COARSE, "fine")


@dataclasses.dataclass(frozen=True, eq=False)
class GroupedGraph:
    """A graph with its groups.

    Attributes:
        op_graph: the graph in columns.
        colocation: its colocation groups.
        grouping: its groups.
        group_graph: what placers see of the groups.
        operation_groups: int32 [num_operations], the group whose device each operation gets, -1
            for the operations that stay as they are.
        coarse: the same with the groups of the heuristic rules, if these are finer; else None.
    """

    op_graph: OpGraph
    colocation: ColocationGroups
    grouping: Grouping
    group_graph: GroupGraph
    operation_groups: np.ndarray
    coarse: GroupedGraph | None = None

    @functools.cached_property
    def clusters(self) -> np.ndarray | None:
        """int32 [num_groups], the group of `coarse` that each group is in; None without these."""
        return None if self.coarse is None else _clusters(self.grouping, self.coarse.grouping)

    @property
    def num_decisions(self) -> int:
        """How many groups there is something to decide about."""
        return sum(kind != LEFT_ALONE for kind in self.grouping.kinds)

    def assignment(self, placement: np.ndarray, device_names: tuple[str, ...]) -> dict[str, str]:
        """Finds the device of each operation whose device field a placement writes.

        Args:
            placement: int32 [num_groups], a device index per group.
            device_names: the devices that it indexes.
        """
        return assignment_of(self.op_graph.names, self.operation_groups, device_names, placement)


@paused_garbage_collection()
def group_operations(op_graph: OpGraph, granularity: str = _COARSE) -> GroupedGraph:
    """Finds the colocation groups of a graph and groups them.

    Args:
        op_graph: the graph, with what a step needs marked.
        granularity: "coarse", by the three rules of the papers; "fine", every colocation group
            that the step needs by itself, and the groups of the rules as `coarse`.

    Returns:
        The graph with its groups.

    Raises:
        ValueError: the granularity is unknown.

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    if granularity not in GRANULARITIES:
        known = ", ".join(GRANULARITIES)
        raise ValueError(f"unknown granularity {quoted(granularity)}: it is one of {known}")
    colocation = find_colocation_groups(op_graph)
    coarse = _grouped(op_graph, colocation, _coarse_groups(op_graph, colocation))
    if granularity == _COARSE:
        return coarse
    grouping = single_groups(op_graph, colocation)
    # The rules find groups that share variables.
    layers = coarse.group_graph.layers[_clusters(grouping, coarse.grouping)]
    return dataclasses.replace(_grouped(op_graph, colocation, grouping, layers), coarse=coarse)


def _coarse_groups(op_graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Groups the colocation groups of a graph by the rules of the papers."""
    grouping = seal_blocks(op_graph, colocation, default_groups(op_graph, colocation))
    return merge_single_consumers(op_graph, colocation, grouping)


def _clusters(grouping: Grouping, coarse: Grouping) -> np.ndarray:
    """Finds the coarse group that each group is in, int32 [num_groups]."""
    clusters = np.full(grouping.num_groups, -1, np.int32)
    placed = grouping.group >= 0
    clusters[grouping.group[placed]] = coarse.group[placed]
    return clusters


def _grouped(
    op_graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    layers: np.ndarray | None = None,
) -> GroupedGraph:
    return GroupedGraph(
        op_graph,
        colocation,
        grouping,
        build_group_graph(op_graph, colocation, grouping, layers),
        operation_groups(op_graph, colocation, grouping),
    )
