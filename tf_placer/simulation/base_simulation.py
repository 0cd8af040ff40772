"""Simulates the step of a base and keeps states of it, compiled by numba."""

from __future__ import annotations

import numpy as np

from tf_placer.simulation import (
    base_step,
    event_heap,
    event_loop,
    job_queue,
    move_differences,
    snapshots,
    step_control,
    step_state,
    step_tables,
)
from tf_placer.simulation.compiling import compiled
from tf_placer.simulation.event_loop import ENDED, PAUSED, run_step
from tf_placer.simulation.move_differences import find_differences
from tf_placer.simulation.snapshots import (
    add_peaks,
    close_peaks,
    load_snapshot,
    put_group,
    start_peaks,
    take_snapshot,
)
from tf_placer.simulation.step_control import (
    arrive,
    move_groups,
    next_active,
    set_limit,
)

__all__ = ["BASE_MODULES", "simulate_base"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


def _simulate_base(
    tables, state, memory, watch, base, snapshots, move, peaks, groups, devices, is_new
):
    """Makes a placement the base.

    Args:
        tables: `StepTables`, the problem.
        state: `StepState`, working space.
        memory: `MemoryAccount`, working space.
        watch: `Watch`, working space.
        base: `BaseStep`, gets the new base.
        snapshots: `Snapshots` of the base; those that are none of the new base are replaced.
        move: `Move`, working space.
        peaks: int64 [num_devices], gets what each device holds at most.
        groups: int64 [n], what is elsewhere than in the base of before; or all groups.
        devices: int64 [n], where that is.
        is_new: whether there was no base before, or it does not matter.

    Returns:
        What is wrong with the move, or ENDED.
    """
    if is_new:
        number = 0
        move.num_moved[0] = 0
        move.placement[groups] = devices
        for group in range(len(base.placement)):
            move.is_moved[group] = False
            put_group(tables, state, base, group, move.placement[group])
    else:
        wrong = move_groups(tables, state, watch, base, move, groups, devices)
        if wrong != ENDED:
            return wrong
        find_differences(tables, memory, base, snapshots, move)
        end = snapshots.size[0]
        number = min(next_active(move.is_active, 0, end), end - 1)
        for at in range(move.num_moved[0]):
            move.is_moved[move.moved[at]] = False
        move.num_moved[0] = 0
    snapshots.size[0] = number + 1
    # Summed up again, so that errors do not grow.
    num_devices, num_operations = tables.compute_secs.shape
    for device in range(num_devices):
        base.total_secs[device] = 0.0
        base.resident_bytes[device] = 0
    for group in range(len(base.placement)):
        device = move.placement[group]
        base.placement[group] = device
        base.total_secs[device] += base.group_secs[group, device]
        base.resident_bytes[device] += tables.group_bytes[group]
    for device in range(num_devices):
        move.resident_bytes[device] = base.resident_bytes[device]
        move.moved_bytes[device] = 0
        watch.total_secs[device] = base.total_secs[device]
        peaks[device] = -1
    set_limit(state, watch, base, np.inf)
    watch.pauses[0].secs = np.inf
    load_snapshot(tables, state, memory, watch, base, snapshots, move, number)

    progress = watch.progress[0]
    num_arrived = arrive(tables, state, number)
    while True:
        count, max_count = snapshots.size[0], len(snapshots.clocks)
        if count < max_count:
            wanted = (num_operations * count + max_count - 1) // max_count
            progress.pause_started = max(wanted, progress.num_started + 1)
        else:
            progress.pause_started = np.iinfo(np.int64).max
        progress.now_secs, progress.num_events, progress.num_jobs = run_step(
            tables,
            state,
            memory,
            base.times,
            peaks,
            watch,
            progress.now_secs,
            progress.num_events,
            progress.num_jobs,
            num_arrived,
        )
        num_arrived = 0
        if progress.outcome != PAUSED:
            break
        take_snapshot(tables, state, memory, watch, base, snapshots, peaks)
    for transfer in range(move.num_same[0], progress.num_jobs - num_operations):
        base.jobs[transfer] = state.jobs[num_operations + transfer]
        base.transfers[transfer] = state.transfers[transfer]
        base.orders[transfer] = state.ranks[num_operations + transfer].order
    move.num_same[0] = progress.num_jobs - num_operations
    for operation in range(num_operations):
        segment = snapshots.size[0] - 1
        while base.times[operation].end_secs < snapshots.clocks[segment].now_secs:
            segment -= 1
        base.segments[operation] = segment
    close_peaks(base, snapshots, peaks, snapshots.size[0] - 1)
    start_peaks(move, peaks)
    add_peaks(snapshots, move, peaks, 0, snapshots.size[0])
    base.step_secs[0] = progress.now_secs
    return ENDED


BASE_MODULES = (
    base_step,
    event_heap,
    event_loop,
    job_queue,
    move_differences,
    snapshots,
    step_control,
    step_state,
    step_tables,
)
"""Those with what it calls."""

simulate_base = compiled(_simulate_base, *BASE_MODULES)
