"""Topological orders, cycles and longest paths of directed graphs."""

from __future__ import annotations

import collections
import functools
import heapq
from collections.abc import Callable, Sized
from typing import Literal

import numpy as np

__all__ = ["compute_longest_paths", "find_cycle", "topological_order"]


def topological_order(
    count: int,
    edges: np.ndarray,
    prefers: Literal["lowest", "newest", "oldest"] = "lowest",
    *,
    breaks_cycles: bool = False,
) -> np.ndarray:
    """Sorts nodes topologically: each comes after its predecessors.

    Args:
        count: the number of nodes.
        edges: int [num_edges, 2], (node before, node after); may repeat.
        prefers: the choice among ready nodes: "lowest" number; "newest", the node that became ready
            last, which follows each path to its end before it begins the next; or "oldest". Ties
            go to the lowest number.
        breaks_cycles: takes the lowest node that is left when none is ready.

    Returns:
        int32 [count], the nodes in order. Shorter if there is an unbroken cycle: the nodes on it
        and their successors are missing.
    """
    before, after = edges.T
    if prefers == "lowest" and (before < after).all():
        return np.arange(count, dtype=np.int32)
    # A stack pops the newest first, so followers are pushed in descending order.
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
    """Finds a cycle.

    Args:
        count: the number of nodes.
        edges: int [num_edges, 2], (node before, node after), with at least one cycle.

    Returns:
        The nodes of one cycle, each before the next and the last before the first.
    """
    is_left = np.ones(count, np.bool_)
    is_left[topological_order(count, edges)] = False
    # Each leftover node has a leftover predecessor, so following predecessors reaches a cycle.
    before, after = edges[is_left[edges].all(axis=1)].T
    waits_for = dict(zip(after.tolist(), before.tolist(), strict=True))
    path = [int(np.argmax(is_left))]
    position = {path[0]: 0}
    while True:
        previous = waits_for[path[-1]]
        if previous in position:
            return path[position[previous] :][::-1]
        position[previous] = len(path)
        path.append(previous)


def compute_longest_paths(
    order: np.ndarray, edges: np.ndarray, secs: np.ndarray, edge_secs: np.ndarray | None = None
) -> np.ndarray:
    """Computes the length of the longest path to each node.

    With order and edges reversed, it is the length of the longest path from each node.

    Args:
        order: int [num_nodes], the nodes in a topological order.
        edges: int [num_edges, 2], (node before, node after); may repeat.
        secs: float64 [num_nodes], the times of the nodes.
        edge_secs: float64 [num_edges], the times of the edges; 0 by default.

    Returns:
        float64 [num_nodes], the lengths without the node itself.
    """
    position = np.empty(len(order), np.int64)
    position[order] = np.arange(len(order))
    between = np.zeros(len(edges)) if edge_secs is None else edge_secs
    # Sorted so, all edges into a node come before the edges out of it.
    sorted_edges = np.argsort(position[edges[:, 0]], kind="stable")
    longest, own = [0.0] * len(order), secs.tolist()
    for (before, after), gap in zip(
        edges[sorted_edges].tolist(), between[sorted_edges].tolist(), strict=True
    ):
        length = longest[before] + own[before] + gap
        if length > longest[after]:
            longest[after] = length
    return np.array(longest)
