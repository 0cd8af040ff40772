"""Clusters of groups by the algorithm of fluid communities."""

from __future__ import annotations

import collections
import heapq
import itertools
import random
from collections.abc import Sequence

import networkx as nx
import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import number_clusters
from graph_passes.grouping.undirected import UndirectedGraph, build_undirected_graph
from graph_passes.util.union_find import UnionFind

__all__ = ["fluid_groups"]

# The maximum number of sweeps over all groups, as in networkx.
_MAX_SWEEPS = 100
# The relative tolerance for equal densities, which are sums in arbitrary order.
_RELATIVE_TOLERANCE = 1e-9


def fluid_groups(
    groups: GroupGraph, num_clusters: int, seed: int, weighted: bool = True
) -> np.ndarray:
    """Clusters the group graph by asynchronous fluid communities.

    A community has density 1, shared evenly by its members. In random order, each group joins the
    densest community among itself and its neighbors; this is repeated until nothing changes. With
    weights, a neighbor counts in proportion to the bytes between the two (at least 1), the group
    itself counts as an average neighbor, and the last member of a community stays. With equal
    weights, or without weights, the result is that of networkx.

    Communities lie within connected components, which get clusters in proportion to their size.
    Components that are smaller than an average cluster are packed together. Groups that 100 sweeps
    do not reach join a neighboring community.

    Args:
        groups: the group graph. It need not be connected.
        num_clusters: the number of clusters; if there are not more groups, each is a cluster.
        seed: the seed of all random choices.
        weighted: weights neighbors by bytes.

    Returns:
        int32 [num_groups], the cluster of each group, numbered by first member; none is empty.

    Raises:
        ValueError: the number of clusters is not positive.

    References:
        Fluid Communities: A Competitive, Scalable and Diverse Community Detection Algorithm (Parés
        et al., 2017).
        EAGLE: Expedited Device Placement with Automatic Grouping for Large Models (Lan et al.).
    """
    if num_clusters < 1:
        raise ValueError(f"num_clusters must be at least 1, not {num_clusters}")
    if num_clusters >= groups.num_groups:
        return np.arange(groups.num_groups, dtype=np.int32)
    graph = build_undirected_graph(groups)
    neighbors = _split_rows(graph, graph.neighbors)
    weights = _split_rows(graph, np.maximum(graph.pair_bytes, 1)) if weighted else None
    source = random.Random(seed)
    cluster = [-1] * groups.num_groups
    next_cluster = 0
    for vertices, share in _distribute_clusters(_find_components(groups), num_clusters):
        if share == 1:
            found = [0] * len(vertices)
        elif weights is None:
            found = _find_networkx_communities(neighbors, vertices, share, source)
        else:
            found = _find_weighted_communities(neighbors, weights, vertices, share, source)
        for vertex, community in zip(vertices, found, strict=True):
            cluster[vertex] = next_cluster + community if community >= 0 else -1
        next_cluster += share
        _assign_unreached(cluster, neighbors, vertices)
    return number_clusters(np.array(cluster))


def _split_rows(graph: UndirectedGraph, values: np.ndarray) -> list[list[int]]:
    """Splits values into one list per group."""
    starts, all_values = graph.start.tolist(), values.tolist()
    return [all_values[a:b] for a, b in itertools.pairwise(starts)]


def _find_components(groups: GroupGraph) -> list[list[int]]:
    """Finds the connected components, in the order of their first group."""
    sets = UnionFind(groups.num_groups)
    for a, b in groups.edges.tolist():
        sets.union(a, b)
    members: dict[int, list[int]] = {}
    for group, root in enumerate(sets.roots().tolist()):
        members.setdefault(root, []).append(group)
    return list(members.values())


def _distribute_clusters(
    components: list[list[int]], num_clusters: int
) -> list[tuple[list[int], int]]:
    """Distributes clusters over components; small components are packed into one cluster.

    Args:
        components: the components, with more groups than clusters in all.
        num_clusters: the total number of clusters.

    Returns:
        Sets of groups, and the number of clusters of each.
    """
    num_groups = sum(map(len, components))
    # Components of at least the average size of a cluster; they are never more than the clusters
    # left for them.
    large = [c for c in components if len(c) * num_clusters >= num_groups]
    small = [c for c in components if len(c) * num_clusters < num_groups]
    num_packs = sum(map(len, small)) * num_clusters // num_groups
    packs: list[list[int]] = [[] for _ in range(max(num_packs, 1))] if small else []
    sizes = [(0, number) for number in range(len(packs))]
    for component in sorted(small, key=len, reverse=True):
        size, number = sizes[0]
        packs[number] += component
        heapq.heapreplace(sizes, (size + len(component), number))

    shares = [1] * len(large)
    # The component with the largest clusters gets the next one, so that none gets more clusters
    # than it has groups.
    waiting = [(-float(len(component)), number) for number, component in enumerate(large)]
    heapq.heapify(waiting)
    for _ in range(num_clusters - len(packs) - len(large)):
        number = waiting[0][1]
        shares[number] += 1
        heapq.heapreplace(waiting, (-len(large[number]) / shares[number], number))
    return [*zip(large, shares, strict=True), *((sorted(pack), 1) for pack in packs)]


def _find_networkx_communities(
    neighbors: Sequence[Sequence[int]],
    vertices: Sequence[int],
    count: int,
    source: random.Random,
) -> list[int]:
    """Finds the community of each vertex with networkx; -1 for vertices that none has reached."""
    graph = nx.Graph()
    graph.add_nodes_from(vertices)
    graph.add_edges_from((v, n) for v in vertices for n in neighbors[v] if v < n)
    communities = nx.algorithms.community.asyn_fluidc(graph, count, _MAX_SWEEPS, source)
    found = {vertex: number for number, each in enumerate(communities) for vertex in each}
    return [found.get(vertex, -1) for vertex in vertices]


def _find_weighted_communities(
    neighbors: Sequence[Sequence[int]],
    weights: Sequence[Sequence[int]],
    vertices: Sequence[int],
    count: int,
    source: random.Random,
) -> list[int]:
    """Finds the community of each vertex by weighted edges; -1 if none has reached it.

    Draws the same random numbers as networkx.
    """
    relative = {}
    for vertex in vertices:
        total, degree = sum(weights[vertex]), len(weights[vertex])
        relative[vertex] = [weight * degree / total for weight in weights[vertex]]
    community = dict.fromkeys(vertices, -1)
    order = list(vertices)
    source.shuffle(order)
    sizes = [1] * count
    for number in range(count):
        community[order[number]] = number
    for _ in range(_MAX_SWEEPS):
        moved = False
        order = list(vertices)
        source.shuffle(order)
        for vertex in order:
            own = community[vertex]
            if own >= 0 and sizes[own] == 1:
                continue
            density = {own: 1.0 / sizes[own]} if own >= 0 else {}
            for neighbor, weight in zip(neighbors[vertex], relative[vertex], strict=True):
                other = community[neighbor]
                if other >= 0:
                    density[other] = density.get(other, 0.0) + weight / sizes[other]
            if not density:
                continue
            enough = max(density.values()) * (1.0 - _RELATIVE_TOLERANCE)
            if density.get(own, 0.0) >= enough:
                continue
            moved = True
            if own >= 0:
                sizes[own] -= 1
            joined = source.choice([number for number, d in density.items() if d >= enough])
            community[vertex] = joined
            sizes[joined] += 1
        if not moved:
            break
    return [community[vertex] for vertex in vertices]


def _assign_unreached(
    cluster: list[int], neighbors: Sequence[Sequence[int]], vertices: Sequence[int]
) -> None:
    """Assigns vertices without a cluster to that of the nearest vertex with one."""
    reached = collections.deque(vertex for vertex in vertices if cluster[vertex] >= 0)
    while reached:
        vertex = reached.popleft()
        for neighbor in neighbors[vertex]:
            if cluster[neighbor] < 0:
                cluster[neighbor] = cluster[vertex]
                reached.append(neighbor)
