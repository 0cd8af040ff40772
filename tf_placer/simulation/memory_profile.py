"""What the devices hold over a simulated step, from its times alone."""

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

    Attributes:
        kinds: int64 [num_holdings]; OUTPUT: a tensor where it was made. COPY: a tensor that was
            received. TEMPORARY: what an operation holds while it runs.
        operations: int64 [num_holdings], the operation that made the tensor, or that runs.
        devices: int32 [num_holdings], where it is held.
        sizes: int64 [num_holdings], in bytes, never 0.
        start_secs: float64 [num_holdings], from when it is held.
        end_secs: float64 [num_holdings], until when.
    """

    kinds: np.ndarray
    operations: np.ndarray
    devices: np.ndarray
    sizes: np.ndarray
    start_secs: np.ndarray
    end_secs: np.ndarray

    def on(self, device: int) -> Holdings:
        """Selects what one device holds."""
        return self.only(self.devices == device)

    def at(self, secs: float) -> Holdings:
        """Selects what is held right after an instant."""
        return self.only((self.start_secs <= secs) & (secs < self.end_secs))

    def only(self, mask: np.ndarray) -> Holdings:
        """Selects the entries where bool [num_holdings] is true."""
        return Holdings(
            self.kinds[mask],
            self.operations[mask],
            self.devices[mask],
            self.sizes[mask],
            self.start_secs[mask],
            self.end_secs[mask],
        )


@dataclasses.dataclass(frozen=True, eq=False)
class MemoryLevels:
    """How much a device holds over the step.

    Attributes:
        secs: float64 [num_levels], increasing from 0.
        levels: int64 [num_levels], the bytes that are held from then on.
    """

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

    read = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    last_use_secs = np.full([problem.num_tensors, problem.num_devices], -np.inf)
    where = trace.operation_devices[problem.consumers]
    np.maximum.at(last_use_secs, (read, where), trace.end_secs[problem.consumers])

    homes = trace.operation_devices[problem.tensor_producers]
    output_end_secs = last_use_secs[np.arange(problem.num_tensors), homes]
    np.maximum.at(output_end_secs, tensors, transfers.end_secs[sent])
    # The last use is never before the end of the producer; without one, that is the end.
    output_end_secs = np.maximum(output_end_secs, trace.end_secs[problem.tensor_producers])

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
        np.concatenate(
            [
                trace.start_secs[problem.tensor_producers],
                transfers.start_secs[sent],
                trace.start_secs,
            ]
        ),
        np.concatenate([output_end_secs, last_use_secs[tensors, destinations], trace.end_secs]),
    )
    lives = (everything.end_secs > everything.start_secs) & (everything.sizes > 0)
    return everything.only(lives)


def memory_levels(held: Holdings, resident_bytes: int) -> MemoryLevels:
    """Computes how much one device holds over the step.

    Args:
        held: what it holds, as `Holdings.on` gives it.
        resident_bytes: what it holds all the time beside that.
    """
    secs, instants = np.unique(
        np.concatenate([[0.0], held.start_secs, held.end_secs]), return_inverse=True
    )
    changes = np.zeros(len(secs), np.int64)
    np.add.at(changes, instants[1:], np.concatenate([held.sizes, -held.sizes]))
    return MemoryLevels(secs, resident_bytes + np.cumsum(changes))
