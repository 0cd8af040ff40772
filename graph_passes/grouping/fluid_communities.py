"""Groups of groups by fluid communities: parts that grow from seeds and push each other."""

from __future__ import annotations

import collections
import heapq
import itertools
import random
from collections.abc import Sequence

import networkx as nx
import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import in_order
from graph_passes.grouping.undirected import UndirectedGraph, undirected_graph
from graph_passes.util.union_find import UnionFind

__all__ = ["fluid_groups"]

# Sweeps over all groups at most, as in networkx.
_MAX_SWEEPS = 100
# Relative to the density that is compared: sums of the same numbers in another order are equal.
_ROUNDING = 1e-9


def fluid_groups(
    groups: GroupGraph, num_parts: int, seed: int, weighted: bool = True
) -> np.ndarray:
    """Finds communities in the graph of groups by asynchronous fluid communities.

    A community has density 1, shared evenly by its members. In random order, each group joins the
    community that is densest around it, itself included; this is repeated until nothing moves.
    Weighted, a neighbor counts in proportion to the bytes that the two send each other (at least
    1), the group itself like an average neighbor, and the last member of a community stays. With
    equal weights the result is that of networkx, and so is the unweighted one.

    Communities lie within connected components, which get parts in proportion to their size.
    Components that are smaller than an average part are packed together. What 100 sweeps do not
    reach joins a community beside it.

    Args:
        groups: the graph of groups. It need not be connected.
        num_parts: how many parts there shall be; with as many groups or fewer, each is a part.
        seed: of all random choices.
        weighted: whether bytes count.

    Returns:
        int32 [num_groups], the part of each group, numbered by their first member; none is empty.

    Raises:
        ValueError: num_parts is not positive.

    References:
        Fluid Communities: A Competitive, Scalable and Diverse Community Detection Algorithm (Parés
        et al., 2017).
        EAGLE: Expedited Device Placement with Automatic Grouping for Large Models (Lan et al.).
    """
    if num_parts < 1:
        raise ValueError(f"num_parts must be at least 1, not {num_parts}")
    if num_parts >= groups.num_groups:
        return np.arange(groups.num_groups, dtype=np.int32)
    graph = undirected_graph(groups)
    neighbors = _rows(graph, graph.neighbors)
    weights = _rows(graph, np.maximum(graph.pair_bytes, 1)) if weighted else None
    source = random.Random(seed)
    part = [-1] * groups.num_groups
    next_part = 0
    for vertices, share in _shared_out(_components(groups), num_parts):
        if share == 1:
            found = [0] * len(vertices)
        elif weights is None:
            found = _networkx_communities(neighbors, vertices, share, source)
        else:
            found = _weighted_communities(neighbors, weights, vertices, share, source)
        for vertex, community in zip(vertices, found, strict=True):
            part[vertex] = next_part + community if community >= 0 else -1
        next_part += share
        _fill(part, neighbors, vertices)
    return in_order(np.array(part))


def _rows(graph: UndirectedGraph, values: np.ndarray) -> list[list[int]]:
    """Splits values into one list per group."""
    starts, all_values = graph.start.tolist(), values.tolist()
    return [all_values[a:b] for a, b in itertools.pairwise(starts)]


def _components(groups: GroupGraph) -> list[list[int]]:
    """Finds the connected components, in the order of their first groups."""
    sets = UnionFind(groups.num_groups)
    for a, b in groups.edges.tolist():
        sets.union(a, b)
    members: dict[int, list[int]] = {}
    for group, root in enumerate(sets.roots().tolist()):
        members.setdefault(root, []).append(group)
    return list(members.values())


def _shared_out(components: list[list[int]], num_parts: int) -> list[tuple[list[int], int]]:
    """Decides what is divided into how many parts: whole components, or several as one part.

    Args:
        components: of more groups than parts.
        num_parts: the sum of all shares.
    """
    num_groups = sum(map(len, components))
    # Of an average part's size or more; there are never more of these than parts left for them.
    large = [c for c in components if len(c) * num_parts >= num_groups]
    small = [c for c in components if len(c) * num_parts < num_groups]
    num_packs = sum(map(len, small)) * num_parts // num_groups
    packs: list[list[int]] = [[] for _ in range(max(num_packs, 1))] if small else []
    sizes = [(0, number) for number in range(len(packs))]
    for component in sorted(small, key=len, reverse=True):
        size, number = sizes[0]
        packs[number] += component
        heapq.heapreplace(sizes, (size + len(component), number))

    shares = [1] * len(large)
    # The component with the largest parts gets the next one, so none gets more than it has groups.
    waiting = [(-float(len(component)), number) for number, component in enumerate(large)]
    heapq.heapify(waiting)
    for _ in range(num_parts - len(packs) - len(large)):
        number = waiting[0][1]
        shares[number] += 1
        heapq.heapreplace(waiting, (-len(large[number]) / shares[number], number))
    return [*zip(large, shares, strict=True), *((sorted(pack), 1) for pack in packs)]


def _networkx_communities(
    neighbors: Sequence[Sequence[int]],
    vertices: Sequence[int],
    count: int,
    source: random.Random,
) -> list[int]:
    """Finds a community per vertex with networkx; -1 where none has reached it."""
    graph = nx.Graph()
    graph.add_nodes_from(vertices)
    graph.add_edges_from((v, n) for v in vertices for n in neighbors[v] if v < n)
    communities = nx.algorithms.community.asyn_fluidc(graph, count, _MAX_SWEEPS, source)
    found = {vertex: number for number, each in enumerate(communities) for vertex in each}
    return [found.get(vertex, -1) for vertex in vertices]


def _weighted_communities(
    neighbors: Sequence[Sequence[int]],
    weights: Sequence[Sequence[int]],
    vertices: Sequence[int],
    count: int,
    source: random.Random,
) -> list[int]:
    """Finds a community per vertex by weighted edges; -1 where none has reached it.

    Draws the random numbers that networkx draws.
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
            enough = max(density.values()) * (1.0 - _ROUNDING)
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


def _fill(part: list[int], neighbors: Sequence[Sequence[int]], vertices: Sequence[int]) -> None:
    """Lets the vertices without a part join that of the nearest vertex that has one."""
    reached = collections.deque(vertex for vertex in vertices if part[vertex] >= 0)
    while reached:
        vertex = reached.popleft()
        for neighbor in neighbors[vertex]:
            if part[neighbor] < 0:
                part[neighbor] = part[vertex]
                reached.append(neighbor)
