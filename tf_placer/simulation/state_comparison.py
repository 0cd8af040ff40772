"""Whether the step of a placement is in a state again that the base was in at the same time."""

from __future__ import annotations

import numba

from tf_placer.simulation.move_differences import find_moved_bytes
from tf_placer.simulation.snapshots import find_waiting

__all__ = ["is_same_memory", "is_same_state"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def _is_same_job(tables, state, base, move, job, other):
    """Says whether a job of the working space is one of the base, not on its way to moved groups.

    A moved operation may miss as many inputs as in the base, but others. Where nothing is under way
    to it, it has all that were made.
    """
    operations, outputs, readers = tables.operations, tables.outputs, tables.readers
    num_operations = tables.compute_secs.shape[1]
    if job < num_operations:
        return job == other and not move.is_moved[operations[job].group]
    if other < num_operations:
        return False
    one = state.transfers[job - num_operations]
    two = base.transfers[other - num_operations]
    if (
        one.output != two.output
        or one.source != two.source
        or state.jobs[job].device != base.jobs[other - num_operations].device
    ):
        return False
    first_reader = outputs[one.output].first_reader
    for at in range(first_reader, first_reader + outputs[one.output].num_readers):
        if move.is_moved[operations[readers[at].operation].group]:
            return False
    return True


@numba.njit
def is_same_state(tables, state, watch, base, snapshots, move, number):
    """Says whether the working space is in a state of the base, but for what moved groups hold.

    Transfers may have other numbers: those that are not over all by the same number.
    """
    clock, progress = snapshots.clocks[number], watch.progress[0]
    if progress.num_events != clock.num_events or progress.num_started != clock.num_started:
        return False
    for server in range(len(state.servers)):
        one, two = state.servers[server], snapshots.servers[number, server]
        if one.free_slots != two.free_slots:
            return False
        if max(one.held_until_secs, clock.now_secs) != max(two.held_until_secs, clock.now_secs):
            return False
    num_operations = tables.compute_secs.shape[1]
    shift = progress.num_jobs - clock.num_jobs
    for at in range(clock.num_events):
        other = snapshots.events[number, at]
        job = other.job + (shift if other.job >= num_operations else 0)
        found = 0
        while found < clock.num_events and state.events[found].job != job:
            found += 1
        if (
            found == clock.num_events
            or state.events[found].secs != other.secs
            or not _is_same_job(tables, state, base, move, job, other.job)
        ):
            return False
    jobs, queued, found, places = state.jobs, state.queued, state.arrived, move.places
    num_missing = snapshots.num_missing[number]
    for operation in range(num_operations):
        if jobs[operation].num_missing != num_missing[operation]:
            return False
    if find_waiting(state, found) != clock.num_waiting:
        return False
    waiting = snapshots.waiting[number]
    for at in range(clock.num_waiting):
        places[waiting[at].job] = at
    for at in range(clock.num_waiting):
        job = found[at]
        other = job - (shift if job >= num_operations else 0)
        place = places[other] if 0 <= other < len(places) else -1
        if (
            not 0 <= place < clock.num_waiting
            or waiting[place].job != other
            or waiting[place].ready_secs != queued[job].ready_secs
            or not _is_same_job(tables, state, base, move, job, other)
        ):
            return False
    return True


@numba.njit
def is_same_memory(tables, state, memory, base, snapshots, move, number):
    """Says whether what is held is the same as in a state, but for what moved groups hold."""
    find_moved_bytes(tables, base, snapshots, move, number)
    for device in range(len(memory.held)):
        other_bytes = snapshots.held[number, device].bytes + move.resident_bytes[device]
        if memory.held[device].bytes != other_bytes + move.moved_bytes[device]:
            return False
    num_operations = tables.compute_secs.shape[1]
    originals, copies = snapshots.originals[number], snapshots.copies[number]
    new_originals, new_copies = memory.originals, memory.copies
    jobs, base_jobs = state.jobs, base.jobs
    for output in range(len(originals)):
        if new_originals[output].num_users != originals[output].num_users:
            return False
        one, two = new_originals[output].last_copy, originals[output].last_copy
        while one >= 0 or two >= 0:
            if one >= 0 and new_copies[one].num_users == 0:
                one = new_copies[one].earlier_copy
            elif two >= 0 and copies[two].num_users == 0:
                two = copies[two].earlier_copy
            elif (
                one < 0
                or two < 0
                or new_copies[one].num_users != copies[two].num_users
                or jobs[num_operations + one].device != base_jobs[two].device
            ):
                return False
            else:
                one, two = new_copies[one].earlier_copy, copies[two].earlier_copy
    return True
