"""Disjoint sets over 0 .. n - 1."""

from __future__ import annotations

import numpy as np

__all__ = ["UnionFind"]


class UnionFind:
    """Disjoint sets; the smallest member represents its set."""

    def __init__(self, size: int) -> None:
        """Makes `size` sets of one member each."""
        self._parent = list(range(size))

    def find(self, member: int) -> int:
        """Finds the representative of a member's set."""
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def union(self, a: int, b: int) -> int:
        """Joins two sets and returns the representative of the result."""
        a, b = self.find(a), self.find(b)
        if a > b:
            a, b = b, a
        self._parent[b] = a
        return a

    def roots(self) -> np.ndarray:
        """Finds the representative of every member: int32 [size]."""
        return np.array([self.find(i) for i in range(len(self._parent))], np.int32)
