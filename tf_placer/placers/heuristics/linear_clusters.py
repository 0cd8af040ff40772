"""Linear clusters of a graph: groups that have the same position in every period of the graph.

An unrolled network is a grid of cells, layers times steps, and the numbers of its groups do not
tell the two directions apart. Its shape does: if a -> b -> d and a -> c -> d, then the edges a -> b
and c -> d lead in the same direction, and so do a -> c and b -> d. Edges that are connected by such
squares form a *class*: all edges from one layer to the next are a class, and so are those from one
step to the next. Without the edges of the largest classes, the graph falls apart into its linear
clusters, which are few and long. Towers that share only parameters are linear clusters, too.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["find_bands", "find_chains", "find_linear_clusters", "find_longest_paths"]

# A node of higher degree, such as a parameter read everywhere, is a cluster of its own.
_MAX_DEGREE = 8
# Among the paths of two edges between the same ends, each is compared with its next ones only.
_MAX_COMPARED_PATHS = 4
_MAX_CLUSTERS = (1024, 256, 64, 16)


def find_linear_clusters(groups: GroupGraph) -> list[np.ndarray]:
    """Finds partitions into linear clusters, along which a graph repeats itself.

    Args:
        groups: the graph of groups. It may have cycles.

    Returns:
        int64 [num_groups] each, the cluster of every group, from 0 without gaps; from at most 1024
        clusters to at least two. The list is empty for a graph that does not repeat itself. The
        result depends on the edges alone, not on the names and numbers of groups.

    References:
        Winkler, Isometric Embedding in Products of Complete Graphs, Discrete Applied Mathematics
        7, 1984: edges on the opposite sides of squares.
    """
    chain_of, count = find_chains(groups)
    edges = np.unique(chain_of[groups.edges.astype(np.int64)].reshape(-1, 2), axis=0)
    edges = edges[edges[:, 0] != edges[:, 1]]
    is_low = _compute_degrees(edges, count) <= _MAX_DEGREE
    edges = edges[is_low[edges].all(axis=1)]
    classes = _find_classes(edges, count)
    sizes = np.bincount(classes)[classes]
    found: list[np.ndarray] = []
    wanted = iter(_MAX_CLUSTERS)
    most = next(wanted)
    # The clusters grow with the classes that stay in the graph. Nodes of high degree stay single,
    # so there may be many clusters even with all classes.
    for size in np.unique(sizes).tolist():
        num_clusters, cluster_of = _find_components(edges[sizes <= size], count)
        if num_clusters < 2:
            break
        if num_clusters <= most:
            found.append(cluster_of[chain_of])
            smaller = (limit for limit in wanted if limit < num_clusters)
            most = next(smaller, 1)
    return found


def find_bands(clusters: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Combines clusters that overlap in time to bands.

    Args:
        clusters: int64 [num_groups], the cluster of each group, from 0 without gaps.
        times: float64 [num_groups], the time of each group, from any origin.

    Returns:
        int64 [num_clusters], the band of each cluster, from 0. A cluster is in a band if its
        middle is before the end of the first cluster of the band.
    """
    count = int(clusters.max()) + 1
    first, last = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(first, clusters, times)
    np.maximum.at(last, clusters, times)
    middle = ((first + last) / 2).tolist()
    bands = np.empty(count, np.int64)
    band, end = -1, -np.inf
    for cluster in np.argsort(first, kind="stable").tolist():
        if middle[cluster] > end:
            band, end = band + 1, last[cluster]
        bands[cluster] = band
    return bands


def find_chains(groups: GroupGraph) -> tuple[np.ndarray, int]:
    """Joins the ends of every edge that is the only output of the one and only input of the other.

    Returns:
        int64 [num_groups], the chain of each group, from 0 without gaps, and the number of chains.
    """
    count = groups.num_groups
    sources, targets = groups.edges.astype(np.int64).T
    num_outputs = np.bincount(sources, minlength=count)
    num_inputs = np.bincount(targets, minlength=count)
    joined = (num_outputs[sources] == 1) & (num_inputs[targets] == 1)
    num_chains, chain_of = _find_components(groups.edges[joined], count)
    return chain_of, num_chains


def find_longest_paths(groups: GroupGraph, rest_secs: np.ndarray) -> np.ndarray:
    """Partitions a graph into paths that follow the longest rest of the step.

    Args:
        groups: the graph of groups.
        rest_secs: float64 [num_groups], the least seconds from the start of a group to the end of
            the step.

    Returns:
        int64 [num_groups], the path of each group, from 0 without gaps.
    """
    edges = groups.edges.astype(np.int64)
    # Keep for each group the edge to the follower with the longest rest; then for each follower the
    # edge from the group with the longest rest.
    for own, other in ((0, 1), (1, 0)):
        edges = edges[np.lexsort([-rest_secs[edges[:, other]], edges[:, own]])]
        edges = edges[np.unique(edges[:, own], return_index=True)[1]]
    return _find_components(edges, groups.num_groups)[1]


def _compute_degrees(edges: np.ndarray, count: int) -> np.ndarray:
    """Computes the larger of the in-degree and the out-degree of each node, int64 [count]."""
    counts = [np.bincount(ends, minlength=count) for ends in edges.T]
    return np.maximum(*counts)


def _find_classes(edges: np.ndarray, count: int) -> np.ndarray:
    """Finds the class of each edge, int64 [num_edges].

    Args:
        edges: int64 [num_edges, 2], sorted, none twice.
        count: the number of nodes.
    """
    sources, targets = edges.T
    num_outputs = np.bincount(sources, minlength=count)
    first_output = np.searchsorted(sources, np.arange(count + 1))
    # All paths of two edges, sorted by their ends.
    counts = num_outputs[targets]
    starts = np.cumsum(counts) - counts
    one = np.repeat(np.arange(len(edges)), counts)
    other = first_output[targets[one]] + np.arange(counts.sum()) - np.repeat(starts, counts)
    ends = sources[one] * np.int64(count) + targets[other]
    order = np.argsort(ends, kind="stable")
    ends, one, other = ends[order], one[order], other[order]
    pairs = [np.zeros([0, 2], np.int64)]
    for distance in range(1, _MAX_COMPARED_PATHS):
        at = np.flatnonzero(ends[distance:] == ends[:-distance])
        pairs.append(np.stack([one[at], other[at + distance]], axis=1))
        pairs.append(np.stack([other[at], one[at + distance]], axis=1))
    return _find_components(np.concatenate(pairs), len(edges))[1]


def _find_components(edges: np.ndarray, count: int) -> tuple[int, np.ndarray]:
    """Finds the number of connected components and, int64 [count], the component of each node."""
    ones = np.ones(len(edges), np.bool_)
    matrix = coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(count, count))
    number, part_of = connected_components(matrix, directed=False)
    return int(number), part_of.astype(np.int64)
