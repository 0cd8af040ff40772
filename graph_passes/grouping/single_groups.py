"""The finest grouping: each colocation group is a group."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import OPERATIONS, PINNED, Grouping, merge_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind

__all__ = ["single_groups"]


def single_groups(graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Makes one group for each needed colocation group.

    Pinned colocation groups are not joined either, so that partitioning algorithms see their edges.

    Args:
        graph: the graph.
        colocation: its colocation groups.

    References:
        A Hierarchical Model for Device Placement (2018), where a network groups operations.
    """
    needed = np.zeros(colocation.num_groups, bool)
    needed[colocation.group[graph.needed]] = True
    group = np.where(needed, np.cumsum(needed) - 1, -1).astype(np.int32)
    pinned = colocation.pinned[needed]
    kinds = tuple(PINNED if a else OPERATIONS for a in pinned.tolist())
    # Merging empty sets numbers the groups by their first needed operation.
    return merge_groups(graph, colocation, Grouping(group, kinds, pinned), UnionFind(len(kinds)))
