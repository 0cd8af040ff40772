"""Keeps states of the step of the base, and makes them those of the working space again."""

from __future__ import annotations

import numba
import numpy as np

from tf_placer.simulation.move_differences import find_moved_bytes

__all__ = [
    "add_peaks",
    "close_peaks",
    "find_waiting",
    "load_snapshot",
    "put_group",
    "start_peaks",
    "take_snapshot",
]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def put_group(tables, state, base, group, device):
    """Puts the operations of a group of the working space on a device."""
    jobs, compute_secs, operations = state.jobs, tables.compute_secs, base.group_operations
    for at in range(base.group_start[group], base.group_start[group + 1]):
        operation = operations[at]
        jobs[operation].secs = compute_secs[device, operation]
        jobs[operation].device = device


@numba.njit
def load_snapshot(tables, state, memory, watch, base, snapshots, move, number):
    """Makes a state of the base that of the working space, as it is with the moved groups."""
    jobs, transfers, ranks, queued = state.jobs, state.transfers, state.ranks, state.queued
    servers, events, started_secs = state.servers, state.events, watch.started_secs
    num_devices, num_operations = tables.compute_secs.shape
    clock, progress = snapshots.clocks[number], watch.progress[0]
    progress.now_secs = clock.now_secs
    progress.num_events = clock.num_events
    progress.num_jobs = clock.num_jobs
    progress.num_started = clock.num_started
    num_missing = snapshots.num_missing[number]
    for operation in range(num_operations):
        jobs[operation].num_missing = num_missing[operation]
    num_transfers = clock.num_jobs - num_operations
    base_jobs, base_transfers, base_orders = base.jobs, base.transfers, base.orders
    for transfer in range(move.num_same[0], num_transfers):
        job = num_operations + transfer
        jobs[job].secs = base_jobs[transfer].secs
        jobs[job].device = base_jobs[transfer].device
        transfers[transfer] = base_transfers[transfer]
        ranks[job].order = base_orders[transfer]
    move.num_same[0] = num_transfers
    old_servers, old_events = snapshots.servers[number], snapshots.events[number]
    for server in range(len(servers)):
        servers[server] = old_servers[server]
    for event in range(clock.num_events):
        events[event] = old_events[event]
    waiting = snapshots.waiting[number]
    for at in range(clock.num_waiting):
        job = waiting[at].job
        queued[job].ready_secs = waiting[at].ready_secs
        queued[job].next = waiting[at].next
        ranks[job].left = waiting[at].left
        ranks[job].right = waiting[at].right
    for device in range(num_devices):
        started_secs[device] = snapshots.started_secs[number, device]
    for moved in range(move.num_moved[0]):
        group = move.moved[moved]
        before = base.placement[group]
        for place in range(base.group_start[group], base.group_start[group + 1]):
            operation = base.group_operations[place]
            if base.segments[operation] < number:
                started_secs[before] -= tables.compute_secs[before, operation]
                started_secs[jobs[operation].device] += jobs[operation].secs
    if memory is not None:
        _load_memory(tables, state, memory, base, snapshots, move, number)


@numba.njit
def _load_memory(tables, state, memory, base, snapshots, move, number):
    """Makes what is held in a state that of the working space."""
    originals, copies, held = memory.originals, memory.copies, memory.held
    old_originals, old_copies = snapshots.originals[number], snapshots.copies[number]
    for output in range(len(originals)):
        originals[output].num_users = old_originals[output].num_users
        originals[output].last_copy = old_originals[output].last_copy
    for transfer in range(move.num_same[0]):
        copies[transfer].num_users = old_copies[transfer].num_users
        copies[transfer].earlier_copy = old_copies[transfer].earlier_copy
    find_moved_bytes(tables, base, snapshots, move, number)
    for device in range(len(held)):
        old = snapshots.held[number, device]
        held[device].known_secs = old.known_secs
        held[device].bytes = old.bytes + move.resident_bytes[device] + move.moved_bytes[device]


@numba.njit
def start_peaks(move, peaks):
    """Takes what is held all the time for what is held at most."""
    for device in range(len(peaks)):
        peaks[device] = move.resident_bytes[device]


@numba.njit
def add_peaks(snapshots, move, peaks, first, end):
    """Takes the peaks from one state of the base to another for those of the moved groups."""
    for number in range(first, end):
        for device in range(len(peaks)):
            if snapshots.peaks[number, device] >= 0:
                there = move.resident_bytes[device] + move.moved_bytes[device]
                peaks[device] = max(peaks[device], snapshots.peaks[number, device] + there)


@numba.njit
def find_waiting(state, found):
    """Lists the jobs that wait; returns how many there are.

    Args:
        state: `StepState`.
        found: int32 [max_jobs], gets them.
    """
    servers, queued, ranks = state.servers, state.queued, state.ranks
    count = 0
    for number in range(len(servers)):
        server = servers[number]
        job = server.first
        while job >= 0:
            found[count] = job
            count += 1
            job = queued[job].next if job != server.last else np.int32(-1)
        # What is in the heap follows what is above it.
        done = count
        if server.root >= 0:
            found[count] = server.root
            count += 1
        while done < count:
            job = found[done]
            done += 1
            for below in (ranks[job].left, ranks[job].right):
                if below >= 0:
                    found[count] = below
                    count += 1
    return count


@numba.njit
def close_peaks(base, snapshots, peaks, number):
    """Keeps what was held at most since a state, and forgets it."""
    for device in range(len(peaks)):
        peak = peaks[device]
        snapshots.peaks[number, device] = peak - base.resident_bytes[device] if peak >= 0 else -1
        peaks[device] = -1


@numba.njit
def take_snapshot(tables, state, memory, watch, base, snapshots, peaks):
    """Keeps the state of the working space, which is one of the base.

    Args:
        tables: `StepTables`, the problem.
        state: `StepState`.
        memory: `MemoryAccount`.
        watch: `Watch`, how far the step is.
        base: `BaseStep`.
        snapshots: `Snapshots`, gets one more.
        peaks: int64 [num_devices], what was held at most since the one before; -1 where nothing was
            noted. Gets -1.
    """
    number = snapshots.size[0]
    snapshots.size[0] = number + 1
    close_peaks(base, snapshots, peaks, number - 1)
    num_devices, num_operations = tables.compute_secs.shape
    clock, progress = snapshots.clocks[number], watch.progress[0]
    clock.now_secs = progress.now_secs
    clock.num_events = progress.num_events
    clock.num_jobs = progress.num_jobs
    clock.num_started = progress.num_started
    jobs, queued, ranks, found = state.jobs, state.queued, state.ranks, state.arrived
    num_missing = snapshots.num_missing[number]
    for operation in range(num_operations):
        num_missing[operation] = jobs[operation].num_missing
    originals, copies = snapshots.originals[number], snapshots.copies[number]
    memory_originals, memory_copies = memory.originals, memory.copies
    for output in range(len(originals)):
        originals[output].num_users = memory_originals[output].num_users
        originals[output].last_copy = memory_originals[output].last_copy
    for transfer in range(clock.num_jobs - num_operations):
        copies[transfer].num_users = memory_copies[transfer].num_users
        copies[transfer].earlier_copy = memory_copies[transfer].earlier_copy
    for server in range(len(state.servers)):
        snapshots.servers[number, server] = state.servers[server]
    for event in range(clock.num_events):
        snapshots.events[number, event] = state.events[event]
    clock.num_waiting = find_waiting(state, found)
    waiting = snapshots.waiting[number]
    for at in range(clock.num_waiting):
        job = found[at]
        waiting[at].job = job
        waiting[at].ready_secs = queued[job].ready_secs
        waiting[at].next = queued[job].next
        waiting[at].left = ranks[job].left
        waiting[at].right = ranks[job].right
    for device in range(num_devices):
        snapshots.started_secs[number, device] = watch.started_secs[device]
        snapshots.held[number, device].known_secs = memory.held[device].known_secs
        snapshots.held[number, device].bytes = (
            memory.held[device].bytes - base.resident_bytes[device]
        )
