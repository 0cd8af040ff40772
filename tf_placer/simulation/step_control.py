"""What the step of a base and that of a placement with some groups elsewhere have in common."""

from __future__ import annotations

import numba
import numpy as np

from tf_placer.simulation.event_loop import ENDED
from tf_placer.simulation.snapshots import put_group

__all__ = [
    "ILLEGAL",
    "UNMOVED",
    "WRONG",
    "arrive",
    "move_groups",
    "next_active",
    "set_limit",
]

# Beside what may become of a step: why it is not simulated.
ILLEGAL, UNMOVED, WRONG = range(3, 6)
# The share of a sum of seconds by which it may be wrong, and more.
_ROUNDING = 1e-9

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def move_groups(tables, state, watch, base, move, groups, devices):
    """Notes which groups are elsewhere; returns what is wrong with that, or ENDED."""
    num_groups, num_devices = base.group_secs.shape
    for at in range(move.num_moved[0]):
        group = move.moved[at]
        put_group(tables, state, base, group, base.placement[group])
        move.placement[group] = base.placement[group]
        move.is_moved[group] = False
    move.num_moved[0] = 0
    for device in range(num_devices):
        move.resident_bytes[device] = base.resident_bytes[device]
        move.moved_bytes[device] = 0
        watch.total_secs[device] = base.total_secs[device]
    is_legal = True
    for at in range(len(groups)):
        group, device = groups[at], devices[at]
        if not (0 <= group < num_groups and 0 <= device < num_devices) or move.is_moved[group]:
            return WRONG
        before = base.placement[group]
        if device == before:
            continue
        move.moved[move.num_moved[0]] = group
        move.num_moved[0] += 1
        move.is_moved[group] = True
        move.placement[group] = device
        if not tables.group_is_legal[group, device]:
            is_legal = False
            continue
        put_group(tables, state, base, group, device)
        move.resident_bytes[before] -= tables.group_bytes[group]
        move.resident_bytes[device] += tables.group_bytes[group]
        watch.total_secs[before] -= base.group_secs[group, before]
        watch.total_secs[device] += base.group_secs[group, device]
    if not is_legal:
        return ILLEGAL
    return ENDED if move.num_moved[0] else UNMOVED


@numba.njit
def set_limit(state, watch, base, limit_secs):
    """Notes beyond what a step is of no interest; returns whether this one certainly is."""
    progress = watch.progress[0]
    most_secs, least_secs = limit_secs, 0.0
    for device in range(len(watch.total_secs)):
        least_secs = max(least_secs, watch.total_secs[device] / state.servers[device].slots)
        most_secs = max(most_secs, base.total_secs[device], watch.total_secs[device])
    progress.limit_secs = limit_secs
    progress.cut_secs = limit_secs + _ROUNDING * most_secs
    progress.pause_started = np.iinfo(np.int64).max
    return least_secs > progress.cut_secs


@numba.njit
def arrive(tables, state, number):
    """Notes the jobs ready at once if a step goes on from a state; returns how many they are."""
    # All but the first are between two times.
    if number > 0:
        return 0
    for at in range(len(tables.sources)):
        state.arrived[at] = tables.sources[at]
    return len(tables.sources)


@numba.njit
def next_active(is_active, first, end):
    """Finds the first segment from one on in which something differs from the base, or `end`."""
    while first < end and not is_active[first]:
        first += 1
    return first
