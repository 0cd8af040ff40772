"""Rule 1: TensorFlow's own colocation groups, and every operation with its gradients."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import Grouping, merge_groups
from graph_passes.grouping.regions import forward_operation
from graph_passes.grouping.single_groups import single_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["default_groups"]


def default_groups(graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Makes one group per colocation group that a step needs, joined with its gradients.

    The gradients of an operation go where it goes, as `colocate_gradients_with_ops` has it. What
    is left alone needs no decision: it becomes one sealed group per device it came with.

    Args:
        graph: the graph.
        colocation: its colocation groups.

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    grouping = single_groups(graph, colocation)
    sets = UnionFind(grouping.num_groups)
    first_on: dict[str, int] = {}
    for colocated in np.flatnonzero((grouping.group >= 0) & colocation.pinned).tolist():
        group = int(grouping.group[colocated])
        sets.union(first_on.setdefault(colocation.devices[colocated], group), group)
    legal_types = grouping.legal_types(colocation)
    _join_gradients(graph, colocation, grouping.group, legal_types, sets)
    return merge_groups(graph, colocation, grouping, sets)


def _join_gradients(
    graph: OpGraph,
    colocation: ColocationGroups,
    group: np.ndarray,
    legal_types: np.ndarray,
    sets: UnionFind,
) -> None:
    """Joins each operation with the operations of its gradient that may go where it may.

    A colocation group may hold gradients of many operations, because TensorFlow keeps what hands a
    gradient on (through an addition, say) with what made it. It goes with one operation only, that
    of its heaviest member: going with all of them would join the layers of a residual network.
    """
    free = graph.needed & ~colocation.pinned[colocation.group]
    work = estimate_work(graph)
    heaviest: dict[int, tuple[float, int]] = {}
    for i in graph.order[free[graph.order]].tolist():
        forward = forward_operation(graph, i)
        own = int(group[colocation.group[i]])
        if forward is not None and (own not in heaviest or work[i] > heaviest[own][0]):
            heaviest[own] = (work[i], forward)
    # Gradients may be needed where the operation itself is not.
    first: dict[tuple[int, int], int] = {}
    for own, (_, forward) in heaviest.items():
        types = int(legal_types[own])
        of_forward = int(group[colocation.group[forward]])
        if free[forward] and legal_types[of_forward] == types:
            sets.union(first.setdefault((forward, types), of_forward), own)
        else:
            sets.union(first.setdefault((forward, types), own), own)
