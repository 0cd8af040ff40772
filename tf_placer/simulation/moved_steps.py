"""Simulates the steps of placements that differ from the base in a few groups, compiled by numba.

With some groups elsewhere, a step is the same until the first operation ends that one of theirs
waits for. If it is later in a state again that the base was in at the same time, both are the same
until the next such end, or for good.
"""

from __future__ import annotations

import numba
import numpy as np

from tf_placer.simulation import (
    base_step,
    event_heap,
    event_loop,
    job_queue,
    move_differences,
    snapshots,
    state_comparison,
    step_control,
    step_state,
    step_tables,
)
from tf_placer.simulation.compiling import compiled
from tf_placer.simulation.event_loop import CUT, ENDED, PAUSED, run_step
from tf_placer.simulation.move_differences import find_differences
from tf_placer.simulation.snapshots import add_peaks, load_snapshot, start_peaks
from tf_placer.simulation.state_comparison import is_same_memory, is_same_state
from tf_placer.simulation.step_control import (
    arrive,
    move_groups,
    next_active,
    set_limit,
)

__all__ = ["MOVED_MODULES", "simulate_moved"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def _simulate(tables, state, memory, watch, base, snapshots, move, peaks):
    """Simulates the step with the moved groups, as little of it as possible.

    Returns:
        What became of it, and how long it takes, in seconds.
    """
    progress, clocks, is_active = watch.progress[0], snapshots.clocks, move.is_active
    find_differences(tables, memory, base, snapshots, move)
    end = snapshots.size[0]
    number = next_active(is_active, 0, end)
    if number == end:
        start_peaks(move, peaks)
        add_peaks(snapshots, move, peaks, 0, end)
        return ENDED, base.step_secs[0]
    num_pauses = 0
    for later in range(number + 1, end):
        if not is_active[later] and not move.is_different[later]:
            watch.pauses[num_pauses].secs = clocks[later].now_secs
            watch.pauses[num_pauses].num_started = clocks[later].num_started
            num_pauses += 1
    watch.pauses[num_pauses].secs = np.inf
    load_snapshot(tables, state, memory, watch, base, snapshots, move, number)
    start_peaks(move, peaks)
    add_peaks(snapshots, move, peaks, 0, number)
    num_arrived = arrive(tables, state, number)
    while True:
        progress.now_secs, progress.num_events, progress.num_jobs = run_step(
            tables,
            state,
            memory,
            None,
            peaks,
            watch,
            progress.now_secs,
            progress.num_events,
            progress.num_jobs,
            num_arrived,
        )
        num_arrived = 0
        if progress.outcome != PAUSED:
            return progress.outcome, progress.now_secs
        while clocks[number].now_secs < progress.now_secs:
            number += 1
        if not is_same_state(tables, state, watch, base, snapshots, move, number):
            continue
        if memory is not None and not is_same_memory(
            tables, state, memory, base, snapshots, move, number
        ):
            continue
        first = number
        number = next_active(is_active, number, end)
        add_peaks(snapshots, move, peaks, first, number)
        if number == end:
            step_secs = base.step_secs[0]
            return CUT if step_secs > progress.limit_secs else ENDED, step_secs
        load_snapshot(tables, state, memory, watch, base, snapshots, move, number)


def _simulate_moved(
    tables,
    state,
    memory,
    watch,
    base,
    snapshots,
    move,
    peaks,
    groups,
    devices,
    limit_secs,
    times_first,
):
    """Simulates a step of the base with some groups elsewhere.

    Args:
        tables: `StepTables`, the problem.
        state: `StepState`, working space.
        memory: `MemoryAccount`, working space.
        watch: `Watch`, working space.
        base: `BaseStep`.
        snapshots: `Snapshots` of the base.
        move: `Move`, working space.
        peaks: int64 [num_devices], gets what each device holds at most.
        groups: int64 [n], what is moved.
        devices: int64 [n], where to.
        limit_secs: a step that is longer may be cut.
        times_first: whether to find out first, without the memory, if it is longer.

    Returns:
        What became of it, and how long it takes, in seconds.
    """
    wrong = move_groups(tables, state, watch, base, move, groups, devices)
    if wrong != ENDED:
        return wrong, np.inf
    if set_limit(state, watch, base, limit_secs):
        return CUT, np.inf
    if times_first:
        outcome, step_secs = _simulate(tables, state, None, watch, base, snapshots, move, peaks)
        if outcome == CUT:
            return outcome, step_secs
        set_limit(state, watch, base, np.inf)
    return _simulate(tables, state, memory, watch, base, snapshots, move, peaks)


MOVED_MODULES = (
    base_step,
    event_heap,
    event_loop,
    job_queue,
    move_differences,
    snapshots,
    state_comparison,
    step_control,
    step_state,
    step_tables,
)
"""Those with what it calls."""

simulate_moved = compiled(_simulate_moved, *MOVED_MODULES)
