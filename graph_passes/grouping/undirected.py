"""The undirected group graph, for partitioning algorithms."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["UndirectedGraph", "build_undirected_graph"]


@dataclasses.dataclass(frozen=True, eq=False)
class UndirectedGraph:
    """An undirected graph in compressed rows.

    The neighbors of group g are `neighbors[start[g]:start[g + 1]]`, in ascending order. Each pair
    of neighbors is listed twice, once for each of them.

    Attributes:
        start: int32 [num_groups + 1].
        neighbors: int32 [2 * num_pairs].
        pair_bytes: int64 [2 * num_pairs], the bytes between the pair in both directions.
    """

    start: np.ndarray
    neighbors: np.ndarray
    pair_bytes: np.ndarray


def build_undirected_graph(groups: GroupGraph) -> UndirectedGraph:
    """Builds the undirected graph of groups.

    Args:
        groups: the group graph.

    Returns:
        The simple undirected graph with the summed bytes of both directions.
    """
    count = groups.num_groups
    ends = np.sort(groups.edges.astype(np.int64), axis=1)
    pairs, pair_of = np.unique(ends[:, 0] * count + ends[:, 1], return_inverse=True)
    pair_bytes = np.zeros(len(pairs), np.int64)
    np.add.at(pair_bytes, pair_of, groups.edge_bytes)
    low, high = np.divmod(pairs, max(count, 1))
    sources, targets = np.concatenate([low, high]), np.concatenate([high, low])
    order = np.lexsort((targets, sources))
    start = np.concatenate([[0], np.cumsum(np.bincount(sources, minlength=count))])
    return UndirectedGraph(
        start.astype(np.int32),
        targets[order].astype(np.int32),
        np.concatenate([pair_bytes, pair_bytes])[order],
    )
