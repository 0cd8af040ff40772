"""The memory of devices over a simulated step, computed from its trace."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.simulation.simulator import StepTrace

__all__ = ["COPY", "OUTPUT", "TEMPORARY", "Holdings", "MemoryLevels", "holdings", "memory_levels"]

OUTPUT, COPY, TEMPORARY = range(3)
"""The values of `Holdings.kinds`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Holdings:
    """The allocations that live for a part of the step, in columns.

    An instant is a number of seconds. An asynchronous device allocates memory when it is handed
    operations, many at one time. Its instants are therefore twice the moment
    (`StepTrace.moments`), plus one when an operation frees memory that only it needs.

    Attributes:
        kinds: int64 [num_holdings]; OUTPUT: a tensor on the device that made it. COPY: a tensor
            on a device that received it. TEMPORARY: memory of an operation while it runs.
        operations: int64 [num_holdings], the operation that made the tensor, or that runs.
        devices: int32 [num_holdings], the device of the allocation.
        sizes: int64 [num_holdings], in bytes, never 0.
        starts: float64 [num_holdings], the instants of allocation.
        ends: float64 [num_holdings], the instants of release.
    """

    kinds: np.ndarray
    operations: np.ndarray
    devices: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def on(self, device: int) -> Holdings:
        """Selects the allocations on one device."""
        return self.only(self.devices == device)

    def at(self, instant: float) -> Holdings:
        """Selects the allocations that are alive right after an instant."""
        return self.only((self.starts <= instant) & (instant < self.ends))

    def only(self, mask: np.ndarray) -> Holdings:
        """Selects the entries where bool [num_holdings] is true."""
        return Holdings(
            self.kinds[mask],
            self.operations[mask],
            self.devices[mask],
            self.sizes[mask],
            self.starts[mask],
            self.ends[mask],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryLevels:
    """The memory of one device over the step.

    Attributes:
        instants: float64 [num_levels], increasing from 0; see `Holdings`.
        secs: float64 [num_levels], the instants in seconds, never decreasing. For an asynchronous
            device, the time when its stream reaches the operation that it is handed then.
        levels: int64 [num_levels], the bytes in use from each instant on.
    """

    instants: np.ndarray
    secs: np.ndarray
    levels: np.ndarray

    @property
    def peak(self) -> int:
        """Index of the first of the highest levels."""
        return int(self.levels.argmax())


def holdings(trace: StepTrace) -> Holdings:
    """Lists all allocations of a step, except resident memory.

    An output lives from the start of its operation to the end of its last local consumer and of its
    last transfer; a copy from the start of its transfer to the end of its last local consumer.
    Allocations that live for no time are left out.
    """
    problem, transfers = trace.problem, trace.transfers
    sent = transfers.tensors >= 0
    tensors, destinations = transfers.tensors[sent], transfers.destinations[sent]
    moments = transfers.begin_moments[sent], transfers.end_moments[sent]

    is_asynchronous = np.array([device.is_asynchronous for device in problem.devices])
    is_ahead = is_asynchronous[trace.operation_devices]
    allocate = np.where(is_ahead, 2.0 * trace.moments, trace.start_secs)
    release = np.where(is_ahead, 2.0 * trace.moments + 1.0, trace.end_secs)
    arrive = np.where(is_asynchronous[destinations], 2.0 * moments[0], transfers.hold_secs[sent])

    read = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    last_use = np.full([problem.num_tensors, problem.num_devices], -np.inf)
    where = trace.operation_devices[problem.consumers]
    np.maximum.at(last_use, (read, where), release[problem.consumers])

    homes = trace.operation_devices[problem.tensor_producers]
    output_ends = last_use[np.arange(problem.num_tensors), homes]
    sent_at = np.where(is_asynchronous[homes[tensors]], 2.0 * moments[1], transfers.end_secs[sent])
    np.maximum.at(output_ends, tensors, sent_at)
    # A tensor without readers is freed at the end of its producer; no reader ends before that.
    output_ends = np.maximum(output_ends, release[problem.tensor_producers])

    sources = [
        problem.tensor_producers,
        transfers.producers[sent],
        np.arange(problem.num_operations),
    ]
    everything = Holdings(
        np.repeat([OUTPUT, COPY, TEMPORARY], [len(each) for each in sources]),
        np.concatenate(sources),
        np.concatenate([homes, destinations, trace.operation_devices]),
        np.concatenate([problem.local_bytes, transfers.bytes[sent], problem.temp_bytes]),
        np.concatenate([allocate[problem.tensor_producers], arrive, allocate]),
        np.concatenate([output_ends, last_use[tensors, destinations], release]),
    )
    lives = (everything.ends > everything.starts) & (everything.sizes > 0)
    return everything.only(lives)


def memory_levels(trace: StepTrace, device: int, held: Holdings) -> MemoryLevels:
    """Computes the memory of one device over the step.

    Args:
        trace: the step.
        device: the index of the device.
        held: the allocations on the device, as `Holdings.on` selects them.
    """
    instants, numbers = np.unique(
        np.concatenate([[0.0], held.starts, held.ends]), return_inverse=True
    )
    changes = np.zeros(len(instants), np.int64)
    np.add.at(changes, numbers[1:], np.concatenate([held.sizes, -held.sizes]))
    resident_bytes = trace.problem.resident_bytes[trace.operation_devices == device].sum()
    secs = instants
    if trace.problem.devices[device].is_asynchronous:
        secs = _stream_secs(trace, device, instants)
    return MemoryLevels(instants, secs, int(resident_bytes) + np.cumsum(changes))


def _stream_secs(trace: StepTrace, device: int, instants: np.ndarray) -> np.ndarray:
    """Finds the time at which the stream of an asynchronous device reaches each instant."""
    operations = np.flatnonzero(trace.operation_devices == device)
    operations = operations[np.argsort(trace.moments[operations])]
    # Operations that take no time do not wait for the stream, so ends may go backwards.
    ends = np.maximum.accumulate(np.append(0.0, trace.end_secs[operations]))
    starts = np.append(np.maximum(trace.start_secs[operations], ends[:-1]), ends[-1])
    before = np.searchsorted(2.0 * trace.moments[operations], instants)
    is_start = np.isin(instants, 2.0 * trace.moments[operations])
    secs: np.ndarray = np.where(is_start, starts[before], ends[before])
    return secs
