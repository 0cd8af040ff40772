"""The jobs of a step that wait for a server, in the order in which it takes them.

A queue is a list, at the end of which nearly all jobs join, and a heap beside it of those that do
not.
"""

from __future__ import annotations

import numba

__all__ = ["take_first", "wait_aside"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def _is_before(queued, ranks, job, other):
    if queued[job].ready_secs != queued[other].ready_secs:
        return queued[job].ready_secs < queued[other].ready_secs
    return ranks[job].order < ranks[other].order


@numba.njit
def _merge(queued, ranks, one, other):
    """Merges two skew heaps, given by their roots; -1 stands for an empty one.

    References:
        Sleator and Tarjan, "Self-adjusting heaps", SIAM Journal on Computing 15(1), 1986.
    """
    if one < 0:
        return other
    if other < 0:
        return one
    if _is_before(queued, ranks, other, one):
        one, other = other, one
    root = one
    while True:
        # `one` is in its place and comes before `other`.
        below = ranks[one].right
        ranks[one].right = ranks[one].left
        if below < 0:
            ranks[one].left = other
            return root
        if _is_before(queued, ranks, other, below):
            below, other = other, below
        ranks[one].left = below
        one = below


@numba.njit
def wait_aside(queued, ranks, server, job):
    """Puts a job that does not belong at the end of a queue into the heap beside it.

    Many jobs may become ready at one instant, in any order.
    """
    ranks[job].left = -1
    ranks[job].right = -1
    server.root = _merge(queued, ranks, server.root, job)


@numba.njit
def take_first(queued, ranks, server):
    """Takes the first job out of a queue and the heap beside it, which is not empty."""
    first = server.first
    root = server.root
    # It is not the last of the queue: that came after everything that is in the heap.
    if first >= 0 and _is_before(queued, ranks, first, root):
        server.first = queued[first].next
        return first
    server.root = _merge(queued, ranks, ranks[root].left, ranks[root].right)
    return root
