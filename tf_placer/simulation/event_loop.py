"""The inner loop of the simulator: steps, event by event, compiled by numba.

Operations and transfers are both *jobs*: each waits in the queue of its *server* (a device with
slots, or a channel that carries one transfer at a time) and then runs for a known time. Jobs 0 to
num_operations - 1 are the operations, the others the transfers in the order in which they were
requested; servers 0 to num_devices - 1 are the devices, the others the channels. What an operation
hands to others is an *output*: a tensor, or the signal to its control successors, which differs
from a tensor without bytes in nothing but its place in the order of transfers.

Only what runs is in the heap of events, so the size of the heap does not depend on the graph.

What is compiled is kept until this file changes, so nothing compiled may come from another one.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

__all__ = ["simulate_steps"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


def _compiled(function: Any) -> Any:
    """Compiles without the interpreter lock, and keeps the result for the next process."""
    try:
        return numba.njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # There is no folder to keep it in.
        return numba.njit(nogil=True, error_model="numpy")(function)


@numba.njit
def _add_event(events, count, secs, job):
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
def _sink(events, count, at, secs, job):
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
def _delay(events, count, jobs, num_operations, device, secs):
    """Delays the end of every operation that runs on a device."""
    for at in range(count):
        job = events[at].job
        if job < num_operations and jobs[job].device == device:
            events[at].secs += secs
    for at in range(count // 2 - 1, -1, -1):
        _sink(events, count, at, events[at].secs, events[at].job)


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
def _wait_aside(queued, ranks, server, job):
    """Puts a job that does not belong at the end of a queue into the heap beside it.

    Many jobs may become ready at one instant, in any order.
    """
    ranks[job].left = -1
    ranks[job].right = -1
    server.root = _merge(queued, ranks, server.root, job)


@numba.njit
def _take_first(queued, ranks, server):
    """Takes the first job out of a queue and the heap beside it, which is not empty."""
    first = server.first
    root = server.root
    # It is not the last of the queue: that came after everything that is in the heap.
    if first >= 0 and _is_before(queued, ranks, first, root):
        server.first = queued[first].next
        return first
    server.root = _merge(queued, ranks, ranks[root].left, ranks[root].right)
    return root


@numba.njit
def _receive(jobs, reader, arrived, count):
    """Counts an input of an operation; returns how many jobs have become ready."""
    num_missing = jobs[reader].num_missing - 1
    jobs[reader].num_missing = num_missing
    # Without a branch, which nothing could predict.
    arrived[count] = reader
    return count + (num_missing == 0)


@numba.njit
def _note_peak(held, peak_bytes, device, now):
    """What a device held until now counts; what comes and goes at one instant does not."""
    if held[device].known_secs != now:
        held[device].known_secs = now
        peak_bytes[device] = max(peak_bytes[device], held[device].bytes)


def _simulate_steps(tables, state, memory, times, placements, step_secs, legal, peak_bytes):
    """Simulates one step per placement.

    Args:
        tables: `StepTables`, the problem.
        state: `StepState`, working space.
        memory: `MemoryAccount`, or None to leave the memory out of account.
        times: _TIMES [max_jobs], gets when the jobs of the last step started and ended; or None.
        placements: int32 [num_placements, num_groups].
        step_secs: float64 [num_placements], gets the step times; infinite where not legal.
        legal: bool [num_placements], gets whether every group may go where it was put.
        peak_bytes: int64 [num_placements, num_devices], gets the most that each device holds; 0
            where not legal or not accounted for.

    Returns:
        How many jobs the last of the steps had.
    """
    # Names of their own: numba counts references on every access to an array in a tuple.
    operations, operation_bytes = tables.operations, tables.operation_bytes
    outputs, readers, inputs = tables.outputs, tables.readers, tables.inputs
    sources, compute_secs, links = tables.sources, tables.compute_secs, tables.links
    group_bytes, group_is_legal = tables.group_bytes, tables.group_is_legal
    transfer_share = tables.transfer_share
    jobs, queued, ranks = state.jobs, state.queued, state.ranks
    transfers, servers, events = state.transfers, state.servers, state.events
    arrived, requested, request = state.arrived, state.requested, state.request
    changed_devices, changed_channels = state.changed_devices, state.changed_channels
    if memory is not None:
        originals, copies, held = memory.originals, memory.copies, memory.held
    num_devices, num_operations = compute_secs.shape
    num_jobs = num_operations

    for index in range(len(placements)):
        peaks = peak_bytes[index]
        for device in range(num_devices):
            peaks[device] = 0
        is_legal = True
        for group in range(len(group_bytes)):
            is_legal &= group_is_legal[group, placements[index, group]]
        legal[index] = is_legal
        if not is_legal:
            step_secs[index] = np.inf
            continue
        if memory is not None:
            for group in range(len(group_bytes)):
                peaks[placements[index, group]] += group_bytes[group]
            for device in range(num_devices):
                held[device].bytes = peaks[device]
                held[device].known_secs = 0.0
            for output in range(len(outputs)):
                originals[output].num_users = outputs[output].num_readers
                originals[output].last_copy = -1
        for operation in range(num_operations):
            device = placements[index, operations[operation].group]
            jobs[operation].secs = compute_secs[device, operation]
            jobs[operation].device = device
            jobs[operation].num_missing = operations[operation].num_inputs
        for number in range(len(servers)):
            server = servers[number]
            server.first = -1
            server.root = -1
            server.free_slots = server.slots
            server.is_changed = False
            server.held_until_secs = 0.0
        for device in range(num_devices):
            requested[device] = -1
        num_changed_devices = 0
        num_changed_channels = 0
        num_jobs = num_operations
        num_events = 0
        now = 0.0
        num_arrived = len(sources)
        for at in range(num_arrived):
            arrived[at] = sources[at]

        while True:
            # All that ends now ends; what becomes ready by that arrives.
            while num_events > 0 and events[0].secs == now:
                ended = events[0].job
                num_events -= 1
                _sink(events, num_events, 0, events[num_events].secs, events[num_events].job)
                if times is not None:
                    times[ended].end_secs = now
                device = jobs[ended].device
                if ended < num_operations:
                    server = servers[device]
                    server.free_slots += 1
                    if not server.is_changed:
                        server.is_changed = True
                        changed_devices[num_changed_devices] = device
                        num_changed_devices += 1
                    if memory is not None:
                        _note_peak(held, peaks, device, now)
                        freed_bytes = operation_bytes[ended].end
                        for at in range(
                            operations[ended].first_input, operations[ended + 1].first_input
                        ):
                            output = inputs[at]
                            if jobs[outputs[output].producer].device == device:
                                num_users = originals[output].num_users - 1
                                originals[output].num_users = num_users
                                last_use_bytes = outputs[output].local_bytes
                            else:
                                copy = originals[output].last_copy
                                while jobs[num_operations + copy].device != device:
                                    copy = copies[copy].earlier_copy
                                num_users = copies[copy].num_users - 1
                                copies[copy].num_users = num_users
                                last_use_bytes = outputs[output].bytes
                            if num_users == 0:
                                freed_bytes += last_use_bytes
                        held[device].bytes -= freed_bytes
                    for at in range(
                        operations[ended].first_reader, operations[ended + 1].first_reader
                    ):
                        reader = readers[at].operation
                        where = jobs[reader].device
                        if where == device:
                            num_arrived = _receive(jobs, reader, arrived, num_arrived)
                            continue
                        output = readers[at].output
                        if requested[where] != output:
                            link = links[device, where]
                            transfer = num_jobs - num_operations
                            requested[where] = output
                            request[where] = transfer
                            transfers[transfer].output = output
                            transfers[transfer].source = device
                            transfers[transfer].channel = link.channel
                            ranks[num_jobs].order = (
                                np.int64(outputs[output].order) * num_devices + where
                            )
                            jobs[num_jobs].secs = (
                                link.latency_secs + outputs[output].bytes / link.bandwidth
                            )
                            jobs[num_jobs].device = where
                            arrived[num_arrived] = num_jobs
                            num_arrived += 1
                            num_jobs += 1
                            if memory is not None:
                                copies[transfer].num_users = 0
                                copies[transfer].earlier_copy = originals[output].last_copy
                                originals[output].last_copy = transfer
                        if memory is not None:
                            copies[request[where]].num_users += 1
                else:
                    transfer = ended - num_operations
                    output = transfers[transfer].output
                    number = transfers[transfer].channel
                    server = servers[number]
                    server.free_slots = 1
                    if not server.is_changed:
                        server.is_changed = True
                        changed_channels[num_changed_channels] = number
                        num_changed_channels += 1
                    if memory is not None:
                        # The readers of the copy do not need the original any more.
                        originals[output].num_users -= copies[transfer].num_users
                        if originals[output].num_users == 0:
                            source = transfers[transfer].source
                            _note_peak(held, peaks, source, now)
                            held[source].bytes -= outputs[output].local_bytes
                    first_reader = outputs[output].first_reader
                    for at in range(first_reader, first_reader + outputs[output].num_readers):
                        reader = readers[at].operation
                        if jobs[reader].device == device:
                            num_arrived = _receive(jobs, reader, arrived, num_arrived)

            # What has arrived joins the queue of its server, nearly always at the end.
            for at in range(num_arrived):
                job = np.int64(arrived[at])
                if job < num_operations:
                    order = job
                    server = servers[jobs[job].device]
                    if not server.is_changed:
                        server.is_changed = True
                        changed_devices[num_changed_devices] = jobs[job].device
                        num_changed_devices += 1
                else:
                    order = ranks[job].order
                    number = transfers[job - num_operations].channel
                    server = servers[number]
                    if not server.is_changed:
                        server.is_changed = True
                        changed_channels[num_changed_channels] = number
                        num_changed_channels += 1
                queued[job].ready_secs = now
                if server.first < 0:
                    server.first = job
                elif server.last_ready_secs < now or server.last_order < order:
                    queued[server.last].next = job
                else:
                    _wait_aside(queued, ranks, server, job)
                    continue
                server.last = job
                server.last_order = order
                server.last_ready_secs = now
            num_arrived = 0

            for at in range(num_changed_channels):
                server = servers[changed_channels[at]]
                server.is_changed = False
                started = server.first
                if server.free_slots == 0 or (started < 0 and server.root < 0):
                    continue
                if server.root >= 0:
                    started = _take_first(queued, ranks, server)
                elif started == server.last:
                    server.first = -1
                else:
                    server.first = queued[started].next
                server.free_slots = 0
                transfer = started - num_operations
                if times is not None:
                    times[started].start_secs = now
                secs = jobs[started].secs
                device = jobs[started].device
                for end in (transfers[transfer].source, device):
                    if transfer_share[end] > 0.0:
                        lost_secs = transfer_share[end] * secs
                        server = servers[end]
                        if server.free_slots < server.slots:
                            _delay(events, num_events, jobs, num_operations, end, lost_secs)
                        else:
                            server.held_until_secs = max(server.held_until_secs, now) + lost_secs
                _add_event(events, num_events, now + secs, started)
                num_events += 1
                if memory is not None:
                    _note_peak(held, peaks, device, now)
                    held[device].bytes += outputs[transfers[transfer].output].bytes
            num_changed_channels = 0
            if num_events > 0 and events[0].secs == now:
                continue  # A transfer without duration ends before devices choose.

            for at in range(num_changed_devices):
                device = changed_devices[at]
                server = servers[device]
                server.is_changed = False
                while server.free_slots > 0:
                    started = server.first
                    if server.root >= 0:
                        started = _take_first(queued, ranks, server)
                    elif started < 0:
                        break
                    elif started == server.last:
                        server.first = -1
                    else:
                        server.first = queued[started].next
                    server.free_slots -= 1
                    if times is not None:
                        times[started].start_secs = now
                    secs = max(now, server.held_until_secs) + jobs[started].secs
                    _add_event(events, num_events, secs, started)
                    num_events += 1
                    if memory is not None:
                        _note_peak(held, peaks, device, now)
                        held[device].bytes += operation_bytes[started].start
            num_changed_devices = 0
            if num_events == 0:
                break
            now = events[0].secs
        step_secs[index] = now
    return num_jobs


simulate_steps = _compiled(_simulate_steps)
