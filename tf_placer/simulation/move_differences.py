"""When the step of a placement that has some groups elsewhere is not as that of the base.

All times are counted in segments: segment k is from state k of the base to the next.
"""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["find_differences", "find_moved_bytes"]

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


@numba.njit
def _mark(marks, first, last):
    for number in range(first, last + 1):
        marks[number] = True


@numba.njit
def find_differences(tables, memory, base, snapshots, move):
    """Finds out in which segments moved groups matter.

    Args:
        tables: `StepTables`, the problem.
        memory: None if what is held does not matter.
        base: `BaseStep`.
        snapshots: `Snapshots`.
        move: `Move`. In `is_active` gets the segments in which something may happen that does not
            in the base, or the other way round; in `is_different` the states in which certainly
            something is elsewhere than in the base.
    """
    operations, outputs, inputs = tables.operations, tables.outputs, tables.inputs
    readers, segments, group_operations = tables.readers, base.segments, base.group_operations
    is_active, is_different = move.is_active, move.is_different
    for number in range(snapshots.size[0]):
        is_active[number] = False
        is_different[number] = False
    for moved in range(move.num_moved[0]):
        group = move.moved[moved]
        before, device = base.placement[group], move.placement[group]
        for place in range(base.group_start[group], base.group_start[group + 1]):
            operation = group_operations[place]
            end = segments[operation]
            ready = 0
            for at in range(
                operations[operation].first_input, operations[operation + 1].first_input
            ):
                producer = outputs[inputs[at]].producer
                made = segments[producer]
                ready = max(ready, made)
                is_active[made] = True
                if memory is not None:
                    where = operations[producer].group
                    if base.placement[where] != before or move.placement[where] != device:
                        _mark(is_different, made + 1, end)
            _mark(is_active, ready, end)
            if memory is None:
                continue
            for at in range(
                operations[operation].first_reader, operations[operation + 1].first_reader
            ):
                reader = readers[at].operation
                where = operations[reader].group
                if (base.placement[where] == before) != (move.placement[where] == device):
                    _mark(is_different, end + 1, segments[reader])


@numba.njit
def find_moved_bytes(tables, base, snapshots, move, number):
    """Finds out what devices hold more than in a state because operations ran elsewhere."""
    operations, outputs, readers = tables.operations, tables.outputs, tables.readers
    group_operations, originals = base.group_operations, snapshots.originals[number]
    moved_bytes = move.moved_bytes
    for device in range(len(moved_bytes)):
        moved_bytes[device] = 0
    for moved in range(move.num_moved[0]):
        group = move.moved[moved]
        for place in range(base.group_start[group], base.group_start[group + 1]):
            operation = group_operations[place]
            if base.segments[operation] >= number:
                continue
            previous = np.int64(-1)
            for at in range(
                operations[operation].first_reader, operations[operation + 1].first_reader
            ):
                output = np.int64(readers[at].output)
                if output != previous and originals[output].num_users > 0:
                    moved_bytes[base.placement[group]] -= outputs[output].local_bytes
                    moved_bytes[move.placement[group]] += outputs[output].local_bytes
                previous = output
