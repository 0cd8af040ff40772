"""Rule 1: TensorFlow's colocation groups, joined with their gradients."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import Grouping, merge_groups
from graph_passes.grouping.regions import find_forward_operation
from graph_passes.grouping.single_groups import single_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["default_groups"]


def default_groups(graph: OpGraph, colocation: ColocationGroups) -> Grouping:
    """Makes one group for each needed colocation group and its gradients.

    The gradients of an operation share its device, as with `colocate_gradients_with_ops`. Pinned
    colocation groups need no decision: they become one sealed group per original device.

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
    legal_classes = grouping.legal_classes(colocation)
    _join_gradients(graph, colocation, grouping.group, legal_classes, sets)
    return merge_groups(graph, colocation, grouping, sets)


def _join_gradients(
    graph: OpGraph,
    colocation: ColocationGroups,
    group: np.ndarray,
    legal_classes: np.ndarray,
    sets: UnionFind,
) -> None:
    """Joins each operation with the operations of its gradient that have the same legal devices.

    A colocation group may hold gradients of many operations, because TensorFlow colocates
    operations that forward a gradient (for example, through an addition) with its producer. Such a
    group joins only the operation of its heaviest member: joining all of them would join the layers
    of a residual network.
    """
    free = graph.needed & ~colocation.pinned[colocation.group]
    work = estimate_work(graph)
    heaviest: dict[int, tuple[float, int]] = {}
    for i in graph.order[free[graph.order]].tolist():
        forward = find_forward_operation(graph, i)
        own = int(group[colocation.group[i]])
        if forward is not None and (own not in heaviest or work[i] > heaviest[own][0]):
            heaviest[own] = (work[i], forward)
    # The step may need gradients of operations that it does not need.
    first: dict[tuple[int, int], int] = {}
    for own, (_, forward) in heaviest.items():
        legal_class = int(legal_classes[own])
        of_forward = int(group[colocation.group[forward]])
        if free[forward] and legal_classes[of_forward] == legal_class:
            sets.union(first.setdefault((forward, legal_class), of_forward), own)
        else:
            sets.union(first.setdefault((forward, legal_class), own), own)
