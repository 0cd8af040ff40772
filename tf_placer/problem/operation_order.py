"""The order in which operations can run, and what stands in its way."""

from __future__ import annotations

import heapq

import numpy as np

__all__ = ["find_cycle", "topological_order"]


def topological_order(num_operations: int, edges: np.ndarray) -> np.ndarray:
    """Orders operations so that each comes after those it waits for.

    Args:
        num_operations: how many operations there are.
        edges: int [num_edges, 2], (operation before, operation after); may repeat.

    Returns:
        int32 [num_operations], the operation to take next, always the one with the lowest index of
        those that can be taken. Shorter if there is a cycle: what lies on a cycle or behind one is
        missing.
    """
    if (edges[:, 0] < edges[:, 1]).all():
        return np.arange(num_operations, dtype=np.int32)
    by_first = np.argsort(edges[:, 0], kind="stable")
    followers = edges[by_first, 1].tolist()
    ends = np.cumsum(np.bincount(edges[:, 0], minlength=num_operations)).tolist()
    waits_for = np.bincount(edges[:, 1], minlength=num_operations)
    ready = np.flatnonzero(waits_for == 0).tolist()  # Sorted, so already a heap.
    missing = waits_for.tolist()
    order = []
    while ready:
        first = heapq.heappop(ready)
        order.append(first)
        for follower in followers[ends[first - 1] if first else 0 : ends[first]]:
            missing[follower] -= 1
            if not missing[follower]:
                heapq.heappush(ready, follower)
    return np.array(order, np.int32)


def find_cycle(num_operations: int, edges: np.ndarray) -> list[int]:
    """Finds operations that wait for each other.

    Args:
        num_operations: how many operations there are.
        edges: int [num_edges, 2], (operation before, operation after), with at least one cycle.

    Returns:
        The operations of one cycle, each before the next and the last before the first.
    """
    stuck = np.ones(num_operations, np.bool_)
    stuck[topological_order(num_operations, edges)] = False
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
