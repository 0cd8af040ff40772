"""Small and random group graphs, and the bytes between clusters."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["cliques", "cut_bytes", "group_graph", "random_graph"]


def group_graph(num_groups: int, edge_bytes: Mapping[tuple[int, int], int]) -> GroupGraph:
    """Makes groups of one operation each."""
    edges = sorted(edge_bytes)
    return GroupGraph(
        names=tuple(f"group_{number}" for number in range(num_groups)),
        kinds=("operations",) * num_groups,
        type_names=("MatMul",),
        type_counts=np.ones([num_groups, 1], np.int32),
        output_shapes=(((8, 16),),) * num_groups,
        edges=np.array(edges, np.int32).reshape(-1, 2),
        edge_bytes=np.array([edge_bytes[edge] for edge in edges], np.int64),
        work=np.ones(num_groups),
        layers=np.arange(num_groups, dtype=np.int32),
    )


def cliques(count: int, size: int, inside: int, between: int) -> GroupGraph:
    """Makes a chain of cliques with interleaved numbers, connected by their first groups.

    Args:
        count: the number of cliques.
        size: the number of groups of each clique.
        inside: the bytes of edges in a clique.
        between: the bytes of edges between cliques.
    """
    edges = {}
    for clique in range(count):
        for a, b in itertools.combinations(range(clique, count * size, count), 2):
            edges[a, b] = inside
        if clique:
            edges[clique - 1, clique] = between
    return group_graph(count * size, edges)


def random_graph(num_groups: int, num_edges: int, seed: int) -> GroupGraph:
    """Makes random edges, also in both directions and repeated, with bytes of different scale."""
    source = np.random.default_rng(seed)
    edges = source.integers(0, num_groups, [num_edges, 2])
    sizes = (10.0 ** source.uniform(0, 7, num_edges)).astype(np.int64)
    sizes[: num_edges // 10] = 0
    return group_graph(
        num_groups,
        {
            (a, b): size
            for (a, b), size in zip(edges.tolist(), sizes.tolist(), strict=True)
            if a != b
        },
    )


def cut_bytes(groups: GroupGraph, membership: np.ndarray) -> int:
    """Adds up the bytes between clusters."""
    ends = membership[groups.edges]
    return int(groups.edge_bytes[ends[:, 0] != ends[:, 1]].sum())
