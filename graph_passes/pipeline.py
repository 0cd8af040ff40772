"""The passes that every graph goes through before it is placed."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from graph_passes.colocation import ColocationGroups, FindColocationGroups
from graph_passes.graph_pass import GraphPass, GraphState, Sequential
from graph_passes.grouping.build_group_graph import build_group_graph
from graph_passes.grouping.default_groups import DefaultGroups
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.grouping import LEFT_ALONE, Grouping
from graph_passes.grouping.model_rules import ModelRules
from graph_passes.grouping.single_consumer import SingleConsumerMerge
from graph_passes.grouping.single_groups import SingleGroups
from graph_passes.op_graph import OpGraph
from graph_passes.placement import assignment_of, operation_groups
from graph_passes.util.messages import quoted

__all__ = ["GRANULARITIES", "GroupedGraph", "group_operations"]

_COARSE = "coarse"
_PASSES: dict[str, tuple[type[GraphPass], ...]] = {
    _COARSE: (DefaultGroups, ModelRules, SingleConsumerMerge),
    "fine": (SingleGroups,),
}
#: The names that `group_operations` takes.
GRANULARITIES = tuple(_PASSES)


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
        if self.coarse is None:
            return None
        clusters = np.full(self.grouping.num_groups, -1, np.int32)
        placed = self.grouping.group >= 0
        clusters[self.grouping.group[placed]] = self.coarse.grouping.group[placed]
        return clusters

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
    if granularity not in _PASSES:
        known = ", ".join(GRANULARITIES)
        raise ValueError(f"unknown granularity {quoted(granularity)}: it is one of {known}")
    colocated = FindColocationGroups().run(GraphState(op_graph.graph_def, op_graph=op_graph)).state
    coarse = _grouped(colocated, _COARSE)
    if granularity == _COARSE:
        return coarse
    return dataclasses.replace(_grouped(colocated, granularity), coarse=coarse)


def _grouped(colocated: GraphState, granularity: str) -> GroupedGraph:
    """Groups the colocation groups of a graph."""
    state = Sequential([make() for make in _PASSES[granularity]]).run(colocated).state
    op_graph, colocation, found = state.op_graph, state.colocation, state.grouping
    assert op_graph is not None
    assert colocation is not None and found is not None
    return GroupedGraph(
        op_graph,
        colocation,
        found,
        build_group_graph(op_graph, colocation, found),
        operation_groups(op_graph, colocation, found),
    )
