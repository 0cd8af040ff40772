"""Parameters: which block each variable belongs to."""

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
    of_operation: np.ndarray,
    sets: UnionFind,
    sealed: Mapping[int, str],
) -> None:
    """Joins each variable to the one block that uses it, and what is made of it alone to it.

    Args:
        graph: the graph.
        regions: its regions.
        joinable: per group a number; groups join only where it is the same for both and not None.
        of_operation: int32 [num_operations], the group of each operation, -1 for none.
        sets: disjoint sets of groups, to join in.
        sealed: the groups of blocks.
    """
    _join_uses(graph, regions, joinable, of_operation, sets)
    is_variable = graph.has_type(VARIABLES) & graph.needed
    holders = set(of_operation[is_variable].tolist())
    # Scalars, such as the factors of an optimizer, go everywhere and say nothing.
    counts = np.array([shape != () for shape in graph.tensor_shapes], bool)[graph.edge_tensor]
    counts &= graph.needed[graph.edge_producer] & graph.needed[graph.edge_consumer]
    pairs = np.stack(
        [of_operation[graph.edge_producer[counts]], of_operation[graph.edge_consumer[counts]]],
        axis=1,
    )
    blocks_beside: dict[int, set[int]] = collections.defaultdict(set)
    for p, c in np.unique(pairs, axis=0).tolist():
        for a, b in ((p, c), (c, p)):
            if a in holders and b in sealed:
                blocks_beside[a].add(b)
    for holder, blocks in blocks_beside.items():
        roots = {sets.find(b) for b in blocks}
        if holder in sealed or len(roots) != 1:
            continue
        (block,) = roots
        if joinable[holder] is not None and joinable[holder] == joinable[block]:
            sets.union(holder, block)


def _join_uses(
    graph: OpGraph,
    regions: Regions,
    joinable: Sequence[int | None],
    of_operation: np.ndarray,
    sets: UnionFind,
) -> None:
    """Joins what is computed from one variable alone, such as its regularizer, to the variable."""
    is_variable = graph.has_type(VARIABLES) & graph.needed
    carries = carries_data(graph, regions.region)
    variable: list[int] = [-1] * graph.num_operations
    for i in graph.order.tolist():
        if is_variable[i]:
            variable[i] = i
        elif not carries[i] and regions.forward[i]:
            found = {variable[int(graph.tensor_producer[t])] for t in graph.input_tensors[i]} - {-1}
            if len(found) != 1:
                continue
            variable[i] = found.pop()
            own, holder = int(of_operation[i]), int(of_operation[variable[i]])
            if not regions.free[i] or regions.region[i] >= 0 or joinable[own] is None:
                continue
            if joinable[own] == joinable[holder]:
                sets.union(own, holder)
