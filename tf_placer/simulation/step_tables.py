"""The tables of a placement problem for the compiled core.

They are tables of records rather than an array per field, so that fields that are used together
share a cache line. `native/tables.h` defines the records.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tf_placer.native.library import Struct, array_of, int64
from tf_placer.problem.path_secs import least_secs
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs, legal_devices
from tf_placer.simulation.join_bounds import latest_rests

__all__ = ["StepTables", "make_tables"]

_OPERATION = np.dtype(
    [
        ("group", np.int32),
        ("num_inputs", np.int32),
        ("first_input", np.uint32),
        ("first_reader", np.uint32),
        ("start_bytes", np.int64),
        ("end_bytes", np.int64),
    ]
)
_OUTPUT = np.dtype(
    [
        ("bytes", np.int64),
        ("local_bytes", np.int64),
        ("order", np.int32),
        ("producer", np.uint32),
        ("first_reader", np.uint32),
        ("num_readers", np.uint32),
    ]
)
_BARRIER = np.dtype([("num_signals", np.int32), ("first_waiter", np.uint32)])
_READER = np.dtype([("operation", np.uint32), ("output", np.uint32)])
_LINK = np.dtype([("latency_secs", np.float64), ("bandwidth", np.float64), ("channel", np.int64)])


class StepTables(Struct):
    """The data of a problem that all placements share: the struct `Tables` of the core."""

    _fields_ = (
        ("operations", array_of(_OPERATION)),
        ("outputs", array_of(_OUTPUT)),
        ("readers", array_of(_READER)),
        ("inputs", array_of(np.uint32)),
        ("barriers", array_of(_BARRIER)),
        ("waiters", array_of(np.int32)),
        ("group_barrier_start", array_of(np.uint32)),
        ("group_barriers", array_of(np.int32)),
        ("sources", array_of(np.int32)),
        ("compute_secs", array_of(np.float64)),
        ("tail_secs", array_of(np.float64)),
        ("links", array_of(_LINK)),
        ("transfer_share", array_of(np.float64)),
        ("transfer_overhead_secs", array_of(np.float64)),
        ("group_secs", array_of(np.float64)),
        ("group_bytes", array_of(np.int64)),
        ("group_is_legal", array_of(np.bool_)),
        ("group_start", array_of(np.int64)),
        ("group_operations", array_of(np.int32)),
        ("is_asynchronous", array_of(np.bool_)),
        ("copies_in_stream", array_of(np.bool_)),
        ("memory_bytes", array_of(np.int64)),
        ("slots", array_of(np.int32)),
        ("num_operations", int64),
        ("num_outputs", int64),
        ("num_barriers", int64),
        ("num_sources", int64),
        ("num_devices", int64),
        ("num_groups", int64),
        ("num_servers", int64),
        ("max_transfers", int64),
    )


def make_tables(problem: PlacementProblem) -> StepTables:
    """Makes the tables of a problem.

    Raises:
        CoreError: the compiled core is missing.
    """
    num_operations = problem.num_operations
    outputs, read, readers = _outputs(problem)
    max_transfers = np.minimum(np.bincount(read), problem.num_devices - 1).sum()
    barriers, passed, barrier_of_signal, waiters, barrier_of_waiter = _barriers(
        read, readers, outputs["order"] >= problem.num_tensors
    )
    is_other = ~np.isin(read, passed)
    read, readers = read[is_other], readers[is_other]
    first_input = _starts(readers, num_operations)
    num_inputs = np.diff(first_input) + np.bincount(waiters, minlength=num_operations)
    inputs = read[np.argsort(readers, kind="stable")]
    # A barrier reads its signals; barriers are numbered after the operations.
    read = np.concatenate([read, passed])
    readers = np.concatenate([readers, num_operations + barrier_of_signal])
    by_output = np.argsort(read, kind="stable")
    reader_records = np.zeros(len(readers), _READER)
    reader_records["operation"] = readers[by_output]
    reader_records["output"] = read[by_output]
    first_reader = _starts(read, len(outputs))
    outputs["first_reader"] = first_reader[:-1]
    outputs["num_readers"] = np.diff(first_reader)

    operations = np.zeros(num_operations + 1, _OPERATION)
    operations["group"][:-1] = problem.groups
    operations["first_reader"] = first_reader[_starts(outputs["producer"], num_operations)]
    operations["first_input"] = first_input
    operations["num_inputs"][:-1] = num_inputs
    unread = outputs[outputs["num_readers"] == 0]
    operations["start_bytes"][:-1] = operations["end_bytes"][:-1] = problem.temp_bytes
    np.add.at(operations["start_bytes"], outputs["producer"], outputs["local_bytes"])
    np.add.at(operations["end_bytes"], unread["producer"], unread["local_bytes"])
    group_bytes = np.zeros(problem.num_groups, np.int64)
    np.add.at(group_bytes, problem.groups, problem.resident_bytes)
    group_is_legal = legal_devices(problem)
    sources = np.flatnonzero(num_inputs == 0).astype(np.int32)
    by_group = np.argsort(problem.groups[waiters], kind="stable")
    links, slots = _links(problem)
    return StepTables(
        operations=operations,
        outputs=outputs,
        readers=reader_records,
        inputs=inputs.astype(np.uint32),
        barriers=barriers,
        waiters=waiters.astype(np.int32),
        group_barrier_start=_starts(problem.groups[waiters], problem.num_groups).astype(np.uint32),
        group_barriers=barrier_of_waiter[by_group].astype(np.int32),
        sources=sources,
        compute_secs=problem.compute_secs.T.copy(),
        tail_secs=least_secs(problem) + latest_rests(problem),
        links=links,
        transfer_share=np.array([float(device.transfer_share) for device in problem.devices]),
        transfer_overhead_secs=np.array(
            [float(device.transfer_overhead_secs) for device in problem.devices]
        ),
        group_secs=np.where(group_is_legal, device_secs(problem), 0.0),
        group_bytes=group_bytes,
        group_is_legal=group_is_legal,
        group_start=_starts(problem.groups, problem.num_groups),
        group_operations=np.argsort(problem.groups, kind="stable").astype(np.int32),
        is_asynchronous=np.array([device.is_asynchronous for device in problem.devices]),
        copies_in_stream=np.array([device.copies_in_stream for device in problem.devices]),
        memory_bytes=np.array([device.memory_bytes for device in problem.devices]),
        slots=slots,
        num_operations=num_operations,
        num_outputs=len(outputs),
        num_barriers=len(barriers) - 1,
        num_sources=len(sources),
        num_devices=problem.num_devices,
        num_groups=problem.num_groups,
        num_servers=len(slots),
        max_transfers=int(max_transfers),
    )


def _outputs(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lists the outputs of operations, and their readers.

    Returns:
        _OUTPUT [num_outputs], without readers; and for each distinct read, sorted, the output and
        the operation, int64 [num_reads].
    """
    # An operation that sends signals has one output more than its tensors.
    signals, signal_of_edge = np.unique(problem.control_edges[:, 0], return_inverse=True)
    num_tensors, no_bytes = problem.num_tensors, np.zeros(len(signals), np.int64)
    producers = np.concatenate([problem.tensor_producers, signals])
    order = np.concatenate([np.arange(num_tensors), num_tensors + signals.astype(np.int64)])
    sorting = np.lexsort([order, producers])
    outputs = np.zeros(len(order), _OUTPUT)
    outputs["bytes"] = np.concatenate([problem.tensor_bytes, no_bytes])[sorting]
    outputs["local_bytes"] = np.concatenate([problem.local_bytes, no_bytes])[sorting]
    outputs["order"] = order[sorting]
    outputs["producer"] = producers[sorting]

    number = np.empty(len(order), np.int64)
    number[sorting] = np.arange(len(order))
    read = np.concatenate(
        [
            np.repeat(np.arange(num_tensors), np.diff(problem.consumer_start)),
            num_tensors + signal_of_edge.reshape(-1),
        ]
    )
    readers = np.concatenate([problem.consumers, problem.control_edges[:, 1]])
    reads = np.unique(number[read] * problem.num_operations + readers)
    read, readers = np.divmod(reads, problem.num_operations)
    return outputs, read, readers


def _starts(owners: np.ndarray, num_owners: int) -> np.ndarray:
    """Finds the start of each owner's entries when sorted by owner, [num_owners + 1]."""
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=num_owners))])


def _barriers(
    read: np.ndarray, readers: np.ndarray, is_signal: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Finds signals that the same operations wait for, if a barrier saves reads.

    Args:
        read: int64 [num_reads], the outputs, sorted.
        readers: int64 [num_reads], the operations that wait for them, sorted for each output.
        is_signal: bool [num_outputs].

    Returns:
        _BARRIER [num_barriers + 1]; the signals of all barriers, and the barrier of each; and the
        operations that wait for all signals of a barrier, and the barrier of each.
    """
    starts = _starts(read, len(is_signal))
    shared: dict[bytes, list[int]] = {}
    for output in np.flatnonzero(is_signal & (np.diff(starts) > 1)).tolist():
        waiters = readers[starts[output] : starts[output + 1]]
        shared.setdefault(waiters.tobytes(), []).append(output)
    every = [
        (np.array(outputs), np.frombuffer(waiters, readers.dtype))
        for waiters, outputs in shared.items()
    ]
    kept = [
        (outputs, waiters)
        for outputs, waiters in every
        if len(outputs) * len(waiters) > len(outputs) + len(waiters)
    ]
    signals, barrier_of_signal = _concatenate(outputs for outputs, _ in kept)
    waiters, barrier_of_waiter = _concatenate(waiters for _, waiters in kept)
    barriers = np.zeros(len(kept) + 1, _BARRIER)
    barriers["num_signals"][:-1] = np.bincount(barrier_of_signal, minlength=len(kept))
    barriers["first_waiter"] = _starts(barrier_of_waiter, len(kept))
    return barriers, signals, barrier_of_signal, waiters, barrier_of_waiter


def _concatenate(parts: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenates arrays of integers; the second result is the part that each comes from."""
    parts = list(parts)
    values = np.concatenate([np.zeros(0, np.int64), *parts])
    return values, np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _links(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """Makes _LINK [num_devices, num_devices], and the slots of devices and channels."""
    # More slots than operations would stay empty.
    slots = [min(device.slots, problem.num_operations) for device in problem.devices]
    number = {device.name: index for index, device in enumerate(problem.devices)}
    links = np.zeros([len(number), len(number)], _LINK)
    channels: dict[str, int] = {}
    for link in problem.links:
        channel = len(slots)
        if link.channel is not None:
            channel = channels.setdefault(link.channel, channel)
        if channel == len(slots):
            slots.append(1)
        links[number[link.source], number[link.destination]] = (
            link.latency_secs,
            link.bandwidth_bytes_per_sec,
            channel,
        )
    return links, np.array(slots, np.int32)
