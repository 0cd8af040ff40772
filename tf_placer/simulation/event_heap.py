"""The jobs of a step that run, in a heap by when they end."""

from __future__ import annotations

import numba

__all__ = ["add_event", "delay", "sink"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def add_event(events, count, secs, job):
    """Adds to a heap of `count` events."""
    at = count
    while at > 0:
        parent = (at - 1) >> 1
        if events[parent].secs <= secs:
            break
        events[at].secs = events[parent].secs
        events[at].job = events[parent].job
        at = parent
    events[at].secs = secs
    events[at].job = job


@numba.njit
def sink(events, count, at, secs, job):
    """Puts an event at a place of a heap of `count`, or below what there comes before it."""
    child = 2 * at + 1
    while child < count:
        if child + 1 < count and events[child + 1].secs < events[child].secs:
            child += 1
        if events[child].secs >= secs:
            break
        events[at].secs = events[child].secs
        events[at].job = events[child].job
        at = child
        child = 2 * at + 1
    events[at].secs = secs
    events[at].job = job


@numba.njit
def delay(events, count, jobs, num_operations, device, secs):
    """Delays the end of every operation that runs on a device."""
    for at in range(count):
        job = events[at].job
        if job < num_operations and jobs[job].device == device:
            events[at].secs += secs
    for at in range(count // 2 - 1, -1, -1):
        sink(events, count, at, events[at].secs, events[at].job)
