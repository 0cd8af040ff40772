"""Assignment of variables to the sealed groups that use them."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.grouping.regions import Regions, carries_data
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.util.union_find import UnionFind

__all__ = ["join_parameters"]


def join_parameters(
    graph: OpGraph,
    regions: Regions,
    joinable: Sequence[int | None],
    group_of_operation: np.ndarray,
    sets: UnionFind,
    sealed: Mapping[int, str],
) -> None:
    """Joins each variable to the single sealed group that uses it.

    Operations that are computed from one variable alone are joined to the variable.

    Args:
        graph: the graph.
        regions: its regions.
        joinable: a number per group; groups join only if their numbers are equal and not None.
        group_of_operation: int32 [num_operations], the group of each operation, -1 for none.
        sets: disjoint sets of groups, changed in place.
        sealed: the sealed groups.
    """
    _join_uses(graph, regions, joinable, group_of_operation, sets)
    is_variable = graph.has_type(VARIABLES) & graph.needed
    holders = set(group_of_operation[is_variable].tolist())
    # Scalars, such as the factors of an optimizer, are read everywhere.
    is_relevant = np.array([shape != () for shape in graph.tensor_shapes], bool)[graph.edge_tensor]
    is_relevant &= graph.needed[graph.edge_producer] & graph.needed[graph.edge_consumer]
    pairs = np.stack(
        [
            group_of_operation[graph.edge_producer[is_relevant]],
            group_of_operation[graph.edge_consumer[is_relevant]],
        ],
        axis=1,
    )
    adjacent_groups: dict[int, set[int]] = collections.defaultdict(set)
    for p, c in np.unique(pairs, axis=0).tolist():
        for a, b in ((p, c), (c, p)):
            if a in holders and b in sealed:
                adjacent_groups[a].add(b)
    for holder, neighbors in adjacent_groups.items():
        roots = {sets.find(b) for b in neighbors}
        if holder in sealed or len(roots) != 1:
            continue
        (neighbor,) = roots
        if joinable[holder] is not None and joinable[holder] == joinable[neighbor]:
            sets.union(holder, neighbor)


def _join_uses(
    graph: OpGraph,
    regions: Regions,
    joinable: Sequence[int | None],
    group_of_operation: np.ndarray,
    sets: UnionFind,
) -> None:
    """Joins operations computed from one variable alone, such as its regularizer, to it."""
    is_variable = graph.has_type(VARIABLES) & graph.needed
    is_data = carries_data(graph, regions.region)
    variable: list[int] = [-1] * graph.num_operations
    for i in graph.order.tolist():
        if is_variable[i]:
            variable[i] = i
        elif not is_data[i] and regions.forward[i]:
            found = {variable[int(graph.tensor_producer[t])] for t in graph.input_tensors[i]} - {-1}
            if len(found) != 1:
                continue
            variable[i] = found.pop()
            own, holder = int(group_of_operation[i]), int(group_of_operation[variable[i]])
            if not regions.free[i] or regions.region[i] >= 0 or joinable[own] is None:
                continue
            if joinable[own] == joinable[holder]:
                sets.union(own, holder)
