"""Analysis of a graph before placement: colocation groups, groups and their graph."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from graph_passes.colocation import ColocationGroups, find_colocation_groups
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.default_groups import default_groups
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.grouping import PINNED, Grouping
from graph_passes.grouping.model_rules import seal_model_groups
from graph_passes.grouping.single_consumer import merge_single_consumers
from graph_passes.grouping.single_groups import single_groups
from graph_passes.op_graph import OpGraph
from graph_passes.placement import assignment_of, operation_groups
from graph_passes.restricted_colocation import restrict_colocation
from graph_passes.restrictions import Restrictions
from graph_passes.util.garbage_collection import pause_garbage_collection
from graph_passes.util.messages import quote

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
        group_graph: the graph between the groups, which placers see.
        operation_groups: int32 [num_operations], the group whose device each operation gets, -1
            for operations whose device field is not written.
        coarse: the graph with coarse groups, if these groups are fine; else None.
    """

    op_graph: OpGraph
    colocation: ColocationGroups
    grouping: Grouping
    group_graph: GroupGraph
    operation_groups: np.ndarray
    coarse: GroupedGraph | None = None

    @functools.cached_property
    def clusters(self) -> np.ndarray | None:
        """int32 [num_groups], the coarse group of each fine group; None without `coarse`."""
        return None if self.coarse is None else _find_clusters(self.grouping, self.coarse.grouping)

    @property
    def num_decisions(self) -> int:
        """The number of groups that are not pinned."""
        return sum(kind != PINNED for kind in self.grouping.kinds)

    def assignment(self, placement: np.ndarray, device_names: tuple[str, ...]) -> dict[str, str]:
        """Finds the device of each operation whose device field the placement writes.

        Args:
            placement: int32 [num_groups], a device index per group.
            device_names: the names of the devices.
        """
        return assignment_of(self.op_graph.names, self.operation_groups, device_names, placement)


@pause_garbage_collection()
def group_operations(
    op_graph: OpGraph, granularity: str = _COARSE, restrictions: Restrictions | None = None
) -> GroupedGraph:
    """Finds the colocation groups of a graph and groups them.

    Args:
        op_graph: the graph, with the operations of the step marked as needed.
        granularity: "coarse": groups by the three rules of the papers; "fine": each needed
            colocation group is a group, and `coarse` has the groups by the rules.
        restrictions: the restrictions of the user; None for none.

    Returns:
        The graph with its groups.

    Raises:
        GraphError: a restriction cannot be honored; see `restrict_colocation`.
        ValueError: the granularity is unknown.

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    if granularity not in GRANULARITIES:
        known = ", ".join(GRANULARITIES)
        raise ValueError(f"unknown granularity {quote(granularity)}: it is one of {known}")
    colocation = restrict_colocation(op_graph, find_colocation_groups(op_graph), restrictions)
    coarse = _build_grouped_graph(op_graph, colocation, _find_coarse_groups(op_graph, colocation))
    if granularity == _COARSE:
        return coarse
    grouping = single_groups(op_graph, colocation)
    # Layers come from the rules, which find groups that share variables.
    layers = coarse.group_graph.layers[_find_clusters(grouping, coarse.grouping)]
    return dataclasses.replace(
        _build_grouped_graph(op_graph, colocation, grouping, layers), coarse=coarse
    )


def _find_coarse_groups(op_graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Merges colocation groups by the rules of the papers."""
    grouping = seal_model_groups(op_graph, colocation, default_groups(op_graph, colocation))
    return merge_single_consumers(op_graph, colocation, grouping)


def _find_clusters(grouping: Grouping, coarse: Grouping) -> np.ndarray:
    """Finds the coarse group of each fine group: int32 [num_groups]."""
    clusters = np.full(grouping.num_groups, -1, np.int32)
    placed = grouping.group >= 0
    clusters[grouping.group[placed]] = coarse.group[placed]
    return clusters


def _build_grouped_graph(
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
