"""The finest grouping: every colocation group by itself."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.graph_pass import GraphPass, GraphState, PassResult
from graph_passes.grouping.grouping import LEFT_ALONE, OPERATIONS, Grouping, merge_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind

__all__ = ["SingleGroups", "single_groups"]


class SingleGroups(GraphPass):
    """One group per colocation group that a step needs.

    What is left alone is not joined either: algorithms that cut graphs shall see its edges where
    they are.

    References:
        A Hierarchical Model for Device Placement (2018), where a network groups operations.
    """

    def run(self, state: GraphState) -> PassResult:
        """Makes the groups anew, whatever grouping there was."""
        graph, colocation = state.op_graph, state.colocation
        assert graph is not None and colocation is not None, "run FindColocationGroups first"
        grouping = single_groups(graph, colocation)
        # Merging nothing numbers the groups by what the step needs of them.
        grouping = merge_groups(graph, colocation, grouping, UnionFind(grouping.num_groups))
        return PassResult(dataclasses.replace(state, grouping=grouping), modified=True)


def single_groups(graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Makes one group per colocation group that a step needs, in the order of colocation groups.

    Args:
        graph: the graph.
        colocation: its colocation groups.

    Returns:
        The groups, not numbered as a `Grouping` is: merge them.
    """
    needed = np.zeros(colocation.num_groups, bool)
    needed[colocation.group[graph.needed]] = True
    group = np.where(needed, np.cumsum(needed) - 1, -1).astype(np.int32)
    alone = colocation.left_alone[needed]
    kinds = tuple(LEFT_ALONE if a else OPERATIONS for a in alone.tolist())
    return Grouping(group, kinds, alone)
