"""The inner loop of the simulator: a step, event by event, compiled by numba.

Operations and transfers are both *jobs*: each waits in the queue of its *server* (a device with
slots, or a channel that carries one transfer at a time) and then runs for a known time. Jobs 0 to
num_operations - 1 are the operations, the others the transfers in the order in which they were
requested; servers 0 to num_devices - 1 are the devices, the others the channels. What an operation
hands to others is an *output*: a tensor, or the signal to its control successors, which differs
from a tensor without bytes in nothing but its place in the order of transfers.

Only what runs is in the heap of events, so the size of the heap does not depend on the graph.

It is compiled with each function that calls it. What is None is left out.
"""

from __future__ import annotations

import numba
import numpy as np

from tf_placer.simulation.event_heap import add_event, delay, sink
from tf_placer.simulation.job_queue import take_first, wait_aside

__all__ = ["CUT", "ENDED", "PAUSED", "run_step", "run_whole_step"]

# Why a step did not go on.
ENDED, PAUSED, CUT = range(3)

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


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
    """Counts what a device held until now, but not what comes and goes at one instant."""
    if held[device].known_secs != now:
        held[device].known_secs = now
        peak_bytes[device] = max(peak_bytes[device], held[device].bytes)


def _run_step(tables, state, memory, times, peaks, watch, now, num_events, num_jobs, num_arrived):
    """Simulates a step from some time on, to its end or until `watch` says so.

    Args:
        tables: `StepTables`, the problem.
        state: `StepState`, as it is when nothing has happened yet at that time.
        memory: `MemoryAccount`, in the same state; or None.
        times: _TIMES [max_jobs], gets when the jobs started and ended from then on; or None.
        peaks: int64 [num_devices], what is the most so far that each device held; kept up to date.
        watch: `Watch`, what may stop it, and how far it is but for what follows here; or None.
        now: the time, in seconds.
        num_events: how many jobs run.
        num_jobs: how many jobs there are so far.
        num_arrived: how many of them are in `state.arrived`.

    Returns:
        The time, how many jobs run, and how many there are.
    """
    # Names of their own: numba counts references on every access to an array in a tuple.
    operations, operation_bytes = tables.operations, tables.operation_bytes
    outputs, readers, inputs = tables.outputs, tables.readers, tables.inputs
    links, transfer_share = tables.links, tables.transfer_share
    jobs, queued, ranks = state.jobs, state.queued, state.ranks
    transfers, servers, events = state.transfers, state.servers, state.events
    arrived, requested, request = state.arrived, state.requested, state.request
    changed_devices, changed_channels = state.changed_devices, state.changed_channels
    if memory is not None:
        originals, copies, held = memory.originals, memory.copies, memory.held
    if watch is not None:
        progress, pauses, pause = watch.progress[0], watch.pauses, 0
        total_secs, started_secs = watch.total_secs, watch.started_secs
        cut_secs = progress.cut_secs
        progress.outcome = ENDED
    num_devices, num_operations = tables.compute_secs.shape
    for device in range(num_devices):
        requested[device] = -1
    num_changed_devices = 0
    num_changed_channels = 0

    while True:
        # All that ends now ends; what becomes ready by that arrives.
        while num_events > 0 and events[0].secs == now:
            ended = events[0].job
            num_events -= 1
            sink(events, num_events, 0, events[num_events].secs, events[num_events].job)
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
                for at in range(operations[ended].first_reader, operations[ended + 1].first_reader):
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
                wait_aside(queued, ranks, server, job)
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
                started = take_first(queued, ranks, server)
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
                        delay(events, num_events, jobs, num_operations, end, lost_secs)
                    else:
                        server.held_until_secs = max(server.held_until_secs, now) + lost_secs
            add_event(events, num_events, now + secs, started)
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
                    started = take_first(queued, ranks, server)
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
                if watch is not None:
                    # The device has this operation and the rest of its own to do from now on.
                    rest_secs = total_secs[device] - started_secs[device]
                    if max(now, server.held_until_secs) + rest_secs / server.slots > cut_secs:
                        progress.outcome = CUT
                        return now, num_events, num_jobs
                    started_secs[device] += jobs[started].secs
                    progress.num_started += 1
                add_event(events, num_events, secs, started)
                num_events += 1
                if memory is not None:
                    _note_peak(held, peaks, device, now)
                    held[device].bytes += operation_bytes[started].start
        num_changed_devices = 0
        if num_events == 0:
            break
        next_secs = events[0].secs
        if watch is not None and next_secs > now:
            if next_secs > progress.limit_secs:
                progress.outcome = CUT
                break
            while pauses[pause].secs < next_secs:
                pause += 1
            if progress.num_started >= progress.pause_started or (
                pauses[pause].secs == next_secs
                and pauses[pause].num_started == progress.num_started
            ):
                progress.outcome = PAUSED
                now = next_secs
                break
        now = next_secs
    return now, num_events, num_jobs


run_step = numba.njit(_run_step)
# Inlined, because a step of a small graph takes no longer than a call with so many arguments.
run_whole_step = numba.njit(forceinline=True)(_run_step)
