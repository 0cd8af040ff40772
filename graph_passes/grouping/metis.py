"""Clusters of groups by METIS: of about equal size, with few bytes between them."""

from __future__ import annotations

import numpy as np
import pymetis

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import number_clusters
from graph_passes.grouping.undirected import build_undirected_graph

__all__ = ["metis_groups"]

# METIS adds up weights in 32-bit integers, unless it was built with larger ones; half of their
# range leaves room.
_MAX_TOTAL_WEIGHT = 1 << 30
# Up to this number, pymetis prefers recursive bisection to k-way partitioning.
_MAX_BISECTION_CLUSTERS = 8
# Seeds are C integers, and -1 means a default.
_NUM_SEEDS = 1 << 31


def metis_groups(groups: GroupGraph, num_clusters: int, seed: int) -> np.ndarray:
    """Partitions the group graph into clusters with about the same number of groups.

    METIS minimizes the bytes between clusters. The weight of an edge is the bytes of both
    directions, at least 1; if the total weight exceeds 2^30, all bytes are scaled down and rounded
    down first. More than 8 clusters are made by k-way partitioning or, if that leaves any empty, as
    it may with few groups per cluster, by recursive bisection.

    Args:
        groups: the group graph. It need not be connected.
        num_clusters: the number of clusters; if there are not more groups, each is a cluster.
        seed: the seed of METIS.

    Returns:
        int32 [num_groups], the cluster of each group, numbered by first member. There may be fewer
        clusters than requested, but none is empty.

    Raises:
        ValueError: the number of clusters is not positive.

    References:
        A fast and high quality multilevel scheme for partitioning irregular graphs (Karypis and
        Kumar, 1998).
        EAGLE: Expedited Device Placement with Automatic Grouping for Large Models (Lan et al.).
    """
    if num_clusters < 1:
        raise ValueError(f"num_clusters must be at least 1, not {num_clusters}")
    if num_clusters >= groups.num_groups:
        return np.arange(groups.num_groups, dtype=np.int32)
    graph = build_undirected_graph(groups)
    weights = _scale_weights(graph.pair_bytes)
    for recursive in (num_clusters <= _MAX_BISECTION_CLUSTERS, True):
        _, clusters = pymetis.part_graph(
            num_clusters,
            pymetis.CSRAdjacency(graph.start, graph.neighbors),
            eweights=weights,
            recursive=recursive,
            options=pymetis.Options(seed=seed % _NUM_SEEDS),
        )
        if len(set(clusters)) == num_clusters:
            break
    return number_clusters(np.asarray(clusters))


def _scale_weights(pair_bytes: np.ndarray) -> np.ndarray:
    """Scales bytes to weights.

    Returns:
        int32 [num_ends], positive, with a sum of at most `_MAX_TOTAL_WEIGHT` unless all are 1.
    """
    total = int(np.maximum(pair_bytes, 1).sum())
    if total > _MAX_TOTAL_WEIGHT:
        # Rounding up to 1 adds less than 1 per edge.
        room = max(_MAX_TOTAL_WEIGHT - len(pair_bytes), 0)
        pair_bytes = np.floor(pair_bytes * (room / total))
    return np.maximum(pair_bytes, 1).astype(np.int32)
