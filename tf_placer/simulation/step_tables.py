"""A placement problem as tables that the inner loop of the simulator walks through in order.

Tables of records rather than an array per field: what is needed together is in one cache line, and
numba passes it on as one argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["StepTables", "make_tables"]

# What says where an entry of another table is has no sign: numba makes two ways of every access
# with a number that could be negative.
_OPERATION = np.dtype(
    [
        ("group", np.int32),
        ("num_inputs", np.int32),  # how many outputs it waits for
        ("first_input", np.uint32),  # of `inputs`; the last is before the first of the next
        ("first_reader", np.uint32),  # of `readers`, in the same way
    ]
)
_OPERATION_BYTES = np.dtype(
    [
        ("start", np.int64),  # what it takes when it starts
        ("end", np.int64),  # what of that nobody needs after its end
    ]
)
_OUTPUT = np.dtype(
    [
        ("bytes", np.int64),  # what a transfer carries, and the destination holds
        ("local_bytes", np.int64),  # what is held where it was made
        ("order", np.int32),  # among the requests of one instant
        ("producer", np.uint32),
        ("first_reader", np.uint32),  # of `readers`; the last is before the first of the next
        ("num_readers", np.uint32),
    ]
)
_READER = np.dtype([("operation", np.uint32), ("output", np.uint32)])
_LINK = np.dtype([("latency_secs", np.float64), ("bandwidth", np.float64), ("channel", np.int64)])


class StepTables(NamedTuple):
    """What is the same for every placement.

    Attributes:
        operations: _OPERATION [num_operations + 1].
        operation_bytes: _OPERATION_BYTES [num_operations].
        outputs: _OUTPUT [num_outputs], sorted by producer and order.
        readers: _READER [num_reads], sorted by output, none twice for one output.
        inputs: uint32 [num_reads], outputs.
        sources: int32, the operations that wait for nothing, in order.
        compute_secs: float64 [num_devices, num_operations].
        links: _LINK [num_devices, num_devices].
        transfer_share: float64 [num_devices].
        group_bytes: int64 [num_groups], what is resident.
        group_is_legal: bool [num_groups, num_devices].
    """

    operations: np.ndarray
    operation_bytes: np.ndarray
    outputs: np.ndarray
    readers: np.ndarray
    inputs: np.ndarray
    sources: np.ndarray
    compute_secs: np.ndarray
    links: np.ndarray
    transfer_share: np.ndarray
    group_bytes: np.ndarray
    group_is_legal: np.ndarray


def make_tables(problem: PlacementProblem) -> tuple[StepTables, np.ndarray]:
    """Lays out a problem.

    Returns:
        The tables, and int32 [num_servers] the slots of the devices and, behind them, channels.
    """
    num_operations, num_tensors = problem.num_operations, problem.num_tensors
    # Whoever sends signals to others has one more output.
    signals, signal_of_edge = np.unique(problem.control_edges[:, 0], return_inverse=True)
    producers = np.concatenate([problem.tensor_producers, signals])
    order = np.concatenate([np.arange(num_tensors), num_tensors + signals.astype(np.int64)])
    no_bytes = np.zeros(len(signals), np.int64)
    output_bytes = np.concatenate([problem.tensor_bytes, no_bytes])
    local_bytes = np.concatenate([problem.local_bytes, no_bytes])
    sorting = np.lexsort([order, producers])
    producers, order = producers[sorting], order[sorting]
    output_bytes, local_bytes = output_bytes[sorting], local_bytes[sorting]
    num_outputs = len(order)

    number = np.empty(num_outputs, np.int64)
    number[sorting] = np.arange(num_outputs)
    read = np.concatenate(
        [
            np.repeat(np.arange(num_tensors), np.diff(problem.consumer_start)),
            num_tensors + signal_of_edge.reshape(-1),
        ]
    )
    readers = np.concatenate([problem.consumers, problem.control_edges[:, 1]])
    # Sorted, and without repetition.
    read, readers = np.divmod(np.unique(number[read] * num_operations + readers), num_operations)

    outputs = np.zeros(num_outputs, _OUTPUT)
    outputs["bytes"] = output_bytes
    outputs["local_bytes"] = local_bytes
    outputs["order"] = order
    outputs["producer"] = producers
    first_reader = _starts(read, num_outputs)
    outputs["first_reader"] = first_reader[:-1]
    outputs["num_readers"] = np.diff(first_reader)
    reader_records = np.zeros(len(readers), _READER)
    reader_records["operation"] = readers
    reader_records["output"] = read
    operations = np.zeros(num_operations + 1, _OPERATION)
    operations["group"][:-1] = problem.groups
    operations["first_reader"] = first_reader[_starts(producers, num_operations)]
    operations["first_input"] = _starts(readers, num_operations)
    operations["num_inputs"][:-1] = np.diff(operations["first_input"])
    operation_bytes = np.zeros(num_operations, _OPERATION_BYTES)
    is_read = outputs["num_readers"] > 0
    operation_bytes["start"] = operation_bytes["end"] = problem.temp_bytes
    np.add.at(operation_bytes["start"], producers, local_bytes)
    np.add.at(operation_bytes["end"], producers[~is_read], local_bytes[~is_read])
    group_bytes = np.zeros(problem.num_groups, np.int64)
    np.add.at(group_bytes, problem.groups, problem.resident_bytes)
    group_is_legal = np.ones([problem.num_groups, problem.num_devices], np.bool_)
    np.logical_and.at(group_is_legal, problem.groups, np.isfinite(problem.compute_secs))
    links, slots = _links(problem)
    tables = StepTables(
        operations=operations,
        operation_bytes=operation_bytes,
        outputs=outputs,
        readers=reader_records,
        inputs=read[np.argsort(readers, kind="stable")].astype(np.uint32),
        sources=np.flatnonzero(operations["num_inputs"][:-1] == 0).astype(np.int32),
        compute_secs=problem.compute_secs.T.copy(),
        links=links,
        transfer_share=np.array([float(device.transfer_share) for device in problem.devices]),
        group_bytes=group_bytes,
        group_is_legal=group_is_legal,
    )
    return tables, slots


def _starts(owners: np.ndarray, num_owners: int) -> np.ndarray:
    """Finds where each owner's entries start when they are sorted by owner, [num_owners + 1]."""
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=num_owners))])


def _links(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """Makes _LINK [num_devices, num_devices], and the slots of devices and channels."""
    # More slots than operations are of no use.
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
