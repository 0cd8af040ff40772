"""A placement problem as tables that the inner loop of the simulator walks through in order.

Tables of records rather than an array per field: what is needed together is in one cache line, and
numba passes it on as one argument.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "MemoryAccount",
    "StepState",
    "StepTables",
    "make_state",
    "make_tables",
    "make_times",
]

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
_JOB = np.dtype(
    [
        ("secs", np.float64),  # how long it takes
        ("device", np.int32),  # where an operation runs or a transfer goes
        ("num_missing", np.int32),  # how many inputs an operation still waits for
    ]
)
_QUEUED = np.dtype(
    [
        ("ready_secs", np.float64),  # when a job was ready or requested
        ("next", np.int32),  # what is behind it in the queue; without meaning for the last
        ("padding", np.int32),
    ]
)
_TIMES = np.dtype([("start_secs", np.float64), ("end_secs", np.float64)])
# What is needed of a job that is not in order of arrival: its place among the jobs that were ready
# at the same time, and what is below it in a heap, or -1.
_RANK = np.dtype([("order", np.int64), ("left", np.int32), ("right", np.int32)])
_TRANSFER = np.dtype(
    [
        ("output", np.int32),
        ("source", np.int32),
        ("channel", np.int32),
        ("padding", np.int32),
    ]
)
_SERVER = np.dtype(
    [
        ("last_ready_secs", np.float64),  # of the last job of the queue
        ("last_order", np.int64),
        ("held_until_secs", np.float64),  # no operation gets on before
        ("first", np.int32),  # of the queue, or -1
        ("last", np.int32),  # of the queue; without meaning when that is empty
        ("root", np.int32),  # of the heap beside the queue, or -1
        ("slots", np.int32),
        ("free_slots", np.int32),
        ("is_changed", np.int32),  # whether something happened since it last chose what to start
    ]
)
_EVENT = np.dtype([("secs", np.float64), ("job", np.int64)])
# A tensor where it was made: how many readers still need it, and the transfer of it that was
# requested last, or -1. Readers elsewhere need it until their transfer has ended.
_ORIGINAL = np.dtype([("num_users", np.int32), ("last_copy", np.int32)])
# A tensor where it was sent: how many readers still need it, and the transfer of the same tensor
# that was requested before this one, or -1.
_COPY = np.dtype([("num_users", np.int32), ("earlier_copy", np.int32)])
# What a device holds, and up to when its peak is known.
_HELD = np.dtype([("bytes", np.int64), ("known_secs", np.float64)])


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


class StepState(NamedTuple):
    """Working space for one step at a time; afterwards it describes the jobs of the step.

    Attributes:
        jobs: _JOB [max_jobs], first the operations.
        queued: _QUEUED [max_jobs].
        ranks: _RANK [max_jobs].
        transfers: _TRANSFER [max_transfers].
        servers: _SERVER [num_servers].
        events: _EVENT [max_running], a heap.
        arrived: int32 [max_jobs + 1], what became ready in one round.
        changed_devices: int32 [num_devices], those whose `is_changed` is set.
        changed_channels: int32 [num_channels], the same for channels.
        requested: int32 [num_devices], the output that was last requested for each device.
        request: int32 [num_devices], the transfer of that.
    """

    jobs: np.ndarray
    queued: np.ndarray
    ranks: np.ndarray
    transfers: np.ndarray
    servers: np.ndarray
    events: np.ndarray
    arrived: np.ndarray
    changed_devices: np.ndarray
    changed_channels: np.ndarray
    requested: np.ndarray
    request: np.ndarray


class MemoryAccount(NamedTuple):
    """Working space for who needs what for how long.

    Attributes:
        originals: _ORIGINAL [num_outputs].
        copies: _COPY [max_transfers].
        held: _HELD [num_devices].
    """

    originals: np.ndarray
    copies: np.ndarray
    held: np.ndarray


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


def make_state(tables: StepTables, slots: np.ndarray) -> tuple[StepState, MemoryAccount]:
    """Makes the working space for one thread."""
    num_devices, num_operations = tables.compute_secs.shape
    num_channels = len(slots) - num_devices
    max_transfers = int(np.minimum(tables.outputs["num_readers"], num_devices - 1).sum())
    max_jobs = num_operations + max_transfers
    max_running = min(int(slots[:num_devices].sum()), num_operations) + num_channels
    ranks = np.zeros(max_jobs, _RANK)
    ranks["order"] = np.arange(len(ranks))
    servers = np.zeros(len(slots), _SERVER)
    servers["slots"] = slots
    state = StepState(
        jobs=_aligned(max_jobs, _JOB),
        queued=_aligned(max_jobs, _QUEUED),
        ranks=ranks,
        transfers=np.zeros(max_transfers, _TRANSFER),
        servers=servers,
        events=np.zeros(max_running, _EVENT),
        arrived=np.zeros(max_jobs + 1, np.int32),
        changed_devices=np.zeros(num_devices, np.int32),
        changed_channels=np.zeros(num_channels, np.int32),
        requested=np.zeros(num_devices, np.int32),
        request=np.zeros(num_devices, np.int32),
    )
    memory = MemoryAccount(
        originals=np.zeros(len(tables.outputs), _ORIGINAL),
        copies=np.zeros(max_transfers, _COPY),
        held=np.zeros(num_devices, _HELD),
    )
    return state, memory


def make_times(state: StepState) -> np.ndarray:
    """Space for when each job starts and ends, _TIMES [max_jobs]."""
    return np.zeros(len(state.jobs), _TIMES)


def _aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, none of which is in two cache lines."""
    size = count * dtype.itemsize
    space = np.zeros(size + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + size].view(dtype)


def _starts(owners: np.ndarray, num_owners: int) -> np.ndarray:
    """Where the entries of each owner start when they are sorted by owner, [num_owners + 1]."""
    return np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=num_owners))])


def _links(problem: PlacementProblem) -> tuple[np.ndarray, np.ndarray]:
    """_LINK [num_devices, num_devices], and the slots of devices and channels."""
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
