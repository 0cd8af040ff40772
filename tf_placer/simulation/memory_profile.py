"""What the devices hold over a simulated step, from its trace alone."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.simulation.simulator import StepTrace

__all__ = ["COPY", "OUTPUT", "TEMPORARY", "Holdings", "MemoryLevels", "holdings", "memory_levels"]

# The values of `Holdings.kinds`.
OUTPUT, COPY, TEMPORARY = range(3)


@dataclasses.dataclass(frozen=True, eq=False)
class Holdings:
    """Everything that a device holds for a part of the step, one entry each.

    An instant is a number of seconds. An asynchronous device takes memory when it is handed
    operations, many at one time: there an instant is twice the moment (`StepTrace.moments`), and
    one more when an operation lets go what it alone needs.

    Attributes:
        kinds: int64 [num_holdings]; OUTPUT: a tensor where it was made. COPY: a tensor that was
            received. TEMPORARY: what an operation holds while it runs.
        operations: int64 [num_holdings], the operation that made the tensor, or that runs.
        devices: int32 [num_holdings], where it is held.
        sizes: int64 [num_holdings], in bytes, never 0.
        starts: float64 [num_holdings], the instants from which it is held.
        ends: float64 [num_holdings], the instants until which it is.
    """

    kinds: np.ndarray
    operations: np.ndarray
    devices: np.ndarray
    sizes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def on(self, device: int) -> Holdings:
        """Selects what one device holds."""
        return self.only(self.devices == device)

    def at(self, instant: float) -> Holdings:
        """Selects what is held right after an instant."""
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
    """How much a device holds over the step.

    Attributes:
        instants: float64 [num_levels], increasing from 0; see `Holdings`.
        secs: float64 [num_levels], the same in seconds, never decreasing: of an asynchronous device
            when its stream comes to what it is handed then.
        levels: int64 [num_levels], the bytes that are held from then on.
    """

    instants: np.ndarray
    secs: np.ndarray
    levels: np.ndarray

    @property
    def peak(self) -> int:
        """Index of the first of the highest levels."""
        return int(self.levels.argmax())


def holdings(trace: StepTrace) -> Holdings:
    """Lists what is held, where and when, beside what is resident.

    An output is held from the start of its operation to the end of its last consumer there and of
    its last transfer; a copy from the start of its transfer to the end of its last consumer there.
    What lives for no time is left out.
    """
    problem, transfers = trace.problem, trace.transfers
    sent = transfers.tensors >= 0
    tensors, destinations = transfers.tensors[sent], transfers.destinations[sent]
    moments = transfers.begin_moments[sent], transfers.end_moments[sent]

    is_asynchronous = np.array([device.is_asynchronous for device in problem.devices])
    # When operations take what they need, and when they let go what they alone needed.
    ahead = is_asynchronous[trace.operation_devices]
    take = np.where(ahead, 2.0 * trace.moments, trace.start_secs)
    leave = np.where(ahead, 2.0 * trace.moments + 1.0, trace.end_secs)
    arrive = np.where(is_asynchronous[destinations], 2.0 * moments[0], transfers.hold_secs[sent])

    read = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    last_use = np.full([problem.num_tensors, problem.num_devices], -np.inf)
    where = trace.operation_devices[problem.consumers]
    np.maximum.at(last_use, (read, where), leave[problem.consumers])

    homes = trace.operation_devices[problem.tensor_producers]
    output_ends = last_use[np.arange(problem.num_tensors), homes]
    gone = np.where(is_asynchronous[homes[tensors]], 2.0 * moments[1], transfers.end_secs[sent])
    np.maximum.at(output_ends, tensors, gone)
    # The last use is never before the end of the producer; without one, that is the end.
    output_ends = np.maximum(output_ends, leave[problem.tensor_producers])

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
        np.concatenate([take[problem.tensor_producers], arrive, take]),
        np.concatenate([output_ends, last_use[tensors, destinations], leave]),
    )
    lives = (everything.ends > everything.starts) & (everything.sizes > 0)
    return everything.only(lives)


def memory_levels(trace: StepTrace, device: int, held: Holdings) -> MemoryLevels:
    """Computes how much one device holds over the step.

    Args:
        trace: the step.
        device: the device.
        held: what it holds, as `Holdings.on` gives it.
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
    """Finds when the stream of an asynchronous device comes to what is done at instants."""
    operations = np.flatnonzero(trace.operation_devices == device)
    operations = operations[np.argsort(trace.moments[operations])]
    # Of what takes no time the stream knows nothing.
    ends = np.maximum.accumulate(np.append(0.0, trace.end_secs[operations]))
    starts = np.append(np.maximum(trace.start_secs[operations], ends[:-1]), ends[-1])
    before = np.searchsorted(2.0 * trace.moments[operations], instants)
    is_start = np.isin(instants, 2.0 * trace.moments[operations])
    secs: np.ndarray = np.where(is_start, starts[before], ends[before])
    return secs
