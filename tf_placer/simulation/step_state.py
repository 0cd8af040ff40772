"""What the inner loop of the simulator works with while it simulates a step.

Tables of records, like those of the problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tf_placer.simulation.step_tables import StepTables

__all__ = ["MemoryAccount", "StepState", "Watch", "make_state", "make_times", "make_watch"]

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


_PAUSE = np.dtype([("secs", np.float64), ("num_started", np.int64)])
# How far a watched step is, and what it is watched for.
_PROGRESS = np.dtype(
    [
        ("now_secs", np.float64),
        ("limit_secs", np.float64),  # what takes longer is of no interest
        ("cut_secs", np.float64),  # a sum of seconds beyond this is certainly beyond the limit
        ("num_events", np.int64),
        ("num_jobs", np.int64),
        ("num_started", np.int64),  # operations
        ("pause_started", np.int64),  # how many started operations are enough for now
        ("outcome", np.int64),  # why it does not go on
    ]
)


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


class Watch(NamedTuple):
    """What ends a step before its time, and how far it is.

    Attributes:
        progress: _PROGRESS [1].
        pauses: _PAUSE [max_pauses + 1], when the step pauses if anything happens then and so many
            operations have started; in order, the last is at no time.
        total_secs: float64 [num_devices], what all operations of each device take.
        started_secs: float64 [num_devices], what those of them take that have started.
    """

    progress: np.ndarray
    pauses: np.ndarray
    total_secs: np.ndarray
    started_secs: np.ndarray


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
    """Makes space for when each job starts and ends, _TIMES [max_jobs]."""
    return np.zeros(len(state.jobs), _TIMES)


def make_watch(num_devices: int, max_pauses: int) -> Watch:
    """Makes what watches the steps of one thread."""
    pauses = np.zeros(max_pauses + 1, _PAUSE)
    pauses["secs"] = np.inf
    return Watch(
        progress=np.zeros(1, _PROGRESS),
        pauses=pauses,
        total_secs=np.zeros(num_devices),
        started_secs=np.zeros(num_devices),
    )


def _aligned(count: int, dtype: np.dtype) -> np.ndarray:
    """Zeros, none of which is in two cache lines."""
    size = count * dtype.itemsize
    space = np.zeros(size + 64, np.uint8)
    start = -space.ctypes.data % 64
    return space[start : start + size].view(dtype)
