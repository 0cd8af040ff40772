"""Orders in which nodes of a graph come after what they wait for, and chains of such nodes."""

from __future__ import annotations

import collections
import functools
import heapq
from collections.abc import Callable, Sized
from typing import Literal

import numpy as np

__all__ = ["find_cycle", "longest_before", "topological_order"]


def topological_order(
    count: int,
    edges: np.ndarray,
    prefers: Literal["lowest", "newest", "oldest"] = "lowest",
    *,
    breaks_cycles: bool = False,
) -> np.ndarray:
    """Orders nodes so that each comes after those it waits for.

    Args:
        count: how many nodes there are.
        edges: int [num_edges, 2], (node before, node after); may repeat.
        prefers: which of the nodes that can be taken is: the one with the lowest number; the one
            that can be for the shortest time, so that a path is followed as far as it goes before
            the next is begun; or the one that can be for the longest. Of those that can be since
            the same time, the one with the lowest number.
        breaks_cycles: whether the lowest node that is left is taken where all wait for each other.

    Returns:
        int32 [count], the nodes to take one after the other. Shorter if there is a cycle that is
        not broken: what lies on it or behind it is missing.
    """
    before, after = edges.T
    if prefers == "lowest" and (before < after).all():
        return np.arange(count, dtype=np.int32)
    # The node that was pushed last is the newest.
    by_before = np.lexsort((-after if prefers == "newest" else after, before))
    followers = after[by_before].tolist()
    start = np.searchsorted(before[by_before], np.arange(count + 1)).tolist()
    missing = np.bincount(after, minlength=count).tolist()
    sources = [node for node in range(count) if not missing[node]]
    ready: Sized = sources
    push: Callable[[int], object] = sources.append
    pop: Callable[[], int] = sources.pop
    if prefers == "newest":
        sources.reverse()
    elif prefers == "oldest":
        ready = queue = collections.deque(sources)
        push, pop = queue.append, queue.popleft
    else:  # Sorted, so already a heap.
        push = functools.partial(heapq.heappush, sources)
        pop = functools.partial(heapq.heappop, sources)
    order: list[int] = []
    lowest = 0
    while len(order) < count:
        if not ready:
            if not breaks_cycles:
                break
            while missing[lowest] <= 0:
                lowest += 1
            missing[lowest] = 0
            push(lowest)
        node = pop()
        order.append(node)
        for follower in followers[start[node] : start[node + 1]]:
            missing[follower] -= 1
            if not missing[follower]:
                push(follower)
    return np.array(order, np.int32)


def find_cycle(count: int, edges: np.ndarray) -> list[int]:
    """Finds nodes that wait for each other.

    Args:
        count: how many nodes there are.
        edges: int [num_edges, 2], (node before, node after), with at least one cycle.

    Returns:
        The nodes of one cycle, each before the next and the last before the first.
    """
    stuck = np.ones(count, np.bool_)
    stuck[topological_order(count, edges)] = False
    # Whatever is stuck waits for something that is, so going back from it ends in a cycle.
    before, after = edges[stuck[edges].all(axis=1)].T
    waits_for = dict(zip(after.tolist(), before.tolist(), strict=True))
    path = [int(np.argmax(stuck))]
    position = {path[0]: 0}
    while True:
        previous = waits_for[path[-1]]
        if previous in position:
            return path[position[previous] :][::-1]
        position[previous] = len(path)
        path.append(previous)


def longest_before(
    order: np.ndarray, edges: np.ndarray, secs: np.ndarray, edge_secs: np.ndarray | None = None
) -> np.ndarray:
    """Adds up the longest chain of nodes that each node has to wait for.

    With the order and the edges turned round, it is the longest chain that waits for each node.

    Args:
        order: int [num_nodes], the nodes in a topological order.
        edges: int [num_edges, 2], (node before, node after); may repeat.
        secs: float64 [num_nodes], what nodes take.
        edge_secs: float64 [num_edges], what lies between the two nodes of each edge; nothing by
            default.

    Returns:
        float64 [num_nodes], without the node itself.
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    between = np.zeros(len(edges)) if edge_secs is None else edge_secs
    # The edges into a node come before those out of it.
    sorted_edges = np.argsort(position[edges[:, 0]], kind="stable")
    longest, own = [0.0] * len(order), secs.tolist()
    for (before, after), gap in zip(
        edges[sorted_edges].tolist(), between[sorted_edges].tolist(), strict=True
    ):
        length = longest[before] + own[before] + gap
        if length > longest[after]:
            longest[after] = length
    return np.array(longest)
