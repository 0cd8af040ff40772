"""Simulates the steps of many placements, compiled by numba."""

from __future__ import annotations

import numpy as np

from tf_placer.simulation import event_heap, event_loop, job_queue, step_state, step_tables
from tf_placer.simulation.compiling import compiled
from tf_placer.simulation.event_loop import run_whole_step

__all__ = ["simulate_steps"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


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
    operations, outputs, sources = tables.operations, tables.outputs, tables.sources
    compute_secs = tables.compute_secs
    group_bytes, group_is_legal = tables.group_bytes, tables.group_is_legal
    jobs, servers, arrived = state.jobs, state.servers, state.arrived
    if memory is not None:
        originals, held = memory.originals, memory.held
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
        for at in range(len(sources)):
            arrived[at] = sources[at]
        step_secs[index], _, num_jobs = run_whole_step(
            tables, state, memory, times, peaks, None, 0.0, 0, num_operations, len(sources)
        )
    return num_jobs


simulate_steps = compiled(
    _simulate_steps, event_heap, event_loop, job_queue, step_state, step_tables
)
