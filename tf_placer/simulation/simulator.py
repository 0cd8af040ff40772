"""The simulator of steps, for batches of placements or for one placement in full detail."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import math
import os
import queue

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.step_space import StepSpace
from tf_placer.simulation.step_tables import StepTables, make_tables

__all__ = ["SimulatedBatch", "Simulator", "StepTrace", "Transfers"]

_MAX_PLACEMENTS_PER_TASK = 64


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedBatch:
    """The simulated step times and peak memory of a batch of placements.

    Attributes:
        step_secs: float64 [num_placements], the step times in seconds; infinite if an operation is
            on a device that it may not go to, or if the step is longer than the limit and was not
            simulated to its end.
        peak_bytes: int64 [num_placements, num_devices], the peak memory of each device; 0 if the
            step time is infinite or memory is not simulated.
        feasible: bool [num_placements], whether the step time is finite and no device holds more
            than its memory.
    """

    step_secs: np.ndarray
    peak_bytes: np.ndarray
    feasible: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Transfers:
    """The transfers of a step in the order in which they ended.

    Attributes:
        tensors: int32 [num_transfers], the tensor; -1 for the signal to control successors.
        producers: int32 [num_transfers], the operation that made the tensor or signal.
        sources: int32 [num_transfers], the sending device.
        destinations: int32 [num_transfers], the receiving device.
        bytes: int64 [num_transfers], the sizes.
        request_secs: float64 [num_transfers], when the producer ended. For a transfer from or to an
            asynchronous device: when that device had done all operations that it had been handed
            by then, and the previous transfer of the same lane had ended.
        start_secs: float64 [num_transfers], when the channel was free for the transfer.
        end_secs: float64 [num_transfers], when the readers on the destination had the tensor.
        causes: int32 [num_transfers], the job that each waited for last; see `StepTrace.causes`.
        hold_secs: float64 [num_transfers], when the destination allocated memory for the copy.
        begin_moments: int64 [num_transfers], the moment of the request; see `StepTrace.moments`.
        end_moments: int64 [num_transfers], the moment of the end; see `StepTrace.moments`.
    """

    tensors: np.ndarray
    producers: np.ndarray
    sources: np.ndarray
    destinations: np.ndarray
    bytes: np.ndarray
    request_secs: np.ndarray
    start_secs: np.ndarray
    end_secs: np.ndarray
    causes: np.ndarray
    hold_secs: np.ndarray
    begin_moments: np.ndarray
    end_moments: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class StepTrace:
    """One simulated step.

    Attributes:
        problem: the simulated problem.
        operation_devices: int32 [num_operations], the device of each operation.
        start_secs: float64 [num_operations], the start of each operation, from the start of the
            step.
        end_secs: float64 [num_operations], the end of each operation.
        ready_secs: float64 [num_operations], when the last input of the operation was there, or
            when the operation was handed to its asynchronous device.
        causes: int32 [num_operations], the job that each operation waited for last, and at whose
            end it started; -1 for none. Jobs are the operations, followed by the transfers.
        moments: int64 [num_operations], a position in the sequence of hand-overs to asynchronous
            devices and of requests and ends of transfers: that of the operation's own hand-over. -1
            on other devices.
        transfers: the transfers between devices.
        peak_bytes: int64 [num_devices], the peak memory of each device.
        step_secs: the end of the last operation.
    """

    problem: PlacementProblem
    operation_devices: np.ndarray
    start_secs: np.ndarray
    end_secs: np.ndarray
    ready_secs: np.ndarray
    causes: np.ndarray
    moments: np.ndarray
    transfers: Transfers
    peak_bytes: np.ndarray
    step_secs: float


class Simulator:
    """Simulates steps of one problem.

    Results do not depend on the number of threads. Several threads may use one simulator at once.
    """

    def __init__(
        self, problem: PlacementProblem, *, memory: bool = True, threads: int | None = None
    ) -> None:
        """Prepares the simulation.

        Args:
            problem: the problem to simulate.
            memory: whether to simulate memory; leaving it out is faster.
            threads: the number of placements to simulate at once; None for the number of cores that
                this process may use.
        """
        self._threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self._threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._problem = problem
        self._memory = memory
        self._tables = make_tables(problem)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        self._free_spaces: queue.SimpleQueue[StepSpace] = queue.SimpleQueue()
        for _ in range(self._threads):
            self._free_spaces.put(StepSpace(self._tables))
        self._executor = concurrent.futures.ThreadPoolExecutor(self._threads)

    @property
    def tables(self) -> StepTables:
        """The tables of the problem for the compiled core."""
        return self._tables

    def simulate(self, placements: np.ndarray, *, limit_secs: float = math.inf) -> SimulatedBatch:
        """Simulates one step of each placement.

        Args:
            placements: int32 [num_placements, num_groups], the device index of each group.
            limit_secs: steps longer than this need not be simulated to their end, which saves most
                of the time if most steps are longer.

        Returns:
            The step times and peak memory.

        Raises:
            ValueError: `placements` has another shape, or a device index is out of range.
        """
        placements = self._check_placements(np.asarray(placements))
        num_placements = len(placements)
        step_secs = np.empty(num_placements)
        legal = np.empty(num_placements, np.bool_)
        peak_bytes = np.empty([num_placements, self._problem.num_devices], np.int64)
        chunk = max(1, min(_MAX_PLACEMENTS_PER_TASK, -(-num_placements // self._threads)))

        def simulate_chunk(first: int) -> None:
            part = slice(first, first + chunk)
            space = self._free_spaces.get()
            try:
                space.simulate(
                    placements[part],
                    step_secs[part],
                    legal[part],
                    peak_bytes[part],
                    memory=self._memory,
                    limit_secs=limit_secs,
                )
            finally:
                self._free_spaces.put(space)

        firsts = range(0, num_placements, chunk)
        # Starting another thread for a single chunk is slower.
        run = map if self._threads == 1 or len(firsts) == 1 else self._executor.map
        try:
            collections.deque(run(simulate_chunk, firsts), maxlen=0)
        except KeyboardInterrupt:
            # The executor does not know a thread that it was just starting, so that Python would
            # wait for it for ever at its end; it ends with the executor.
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = concurrent.futures.ThreadPoolExecutor(self._threads)
            raise
        fits = (peak_bytes <= self._capacities).all(axis=1)
        return SimulatedBatch(step_secs, peak_bytes, np.isfinite(step_secs) & fits)

    def trace(self, placement: np.ndarray) -> StepTrace:
        """Simulates one step in full detail, memory included.

        Args:
            placement: int32 [num_groups], the device index of each group.

        Returns:
            The times and devices of all operations and transfers.

        Raises:
            ValueError: `placement` has another shape, a device index is out of range, or an
                operation is on a device that it may not go to.
        """
        placement = np.asarray(placement)
        if placement.shape != (self._problem.num_groups,):
            raise ValueError(
                f"a placement must have the shape [{self._problem.num_groups}], not "
                f"{list(placement.shape)}"
            )
        placement = self._check_placements(placement[np.newaxis])
        operation_devices = placement[0, self._problem.groups]
        secs = self._problem.compute_secs[np.arange(len(operation_devices)), operation_devices]
        if not np.isfinite(secs).all():
            operation = int(np.flatnonzero(~np.isfinite(secs))[0])
            raise ValueError(
                f"operation {self._problem.operation_names[operation]!r} may not go to device "
                f"{self._problem.devices[operation_devices[operation]].name!r}"
            )
        space = self._free_spaces.get()
        try:
            step = space.trace(placement[0])
        finally:
            self._free_spaces.put(space)
        # The core numbers transfers in the order of their requests; renumber them by their ends.
        order = np.lexsort([step.transfers["order"], step.transfers["end_secs"]])
        number = np.arange(self._problem.num_operations + len(order), dtype=np.int32)
        number[self._problem.num_operations + order] = number[self._problem.num_operations :]
        number = np.append(number, np.int32(-1))
        return StepTrace(
            problem=self._problem,
            operation_devices=operation_devices,
            start_secs=step.times["start_secs"].copy(),
            end_secs=step.times["end_secs"].copy(),
            ready_secs=step.ready_secs,
            causes=number[step.causes],
            moments=step.moments,
            transfers=self._transfers(step.transfers[order], number),
            peak_bytes=step.peak_bytes,
            step_secs=step.step_secs,
        )

    def _transfers(self, transfers: np.ndarray, number: np.ndarray) -> Transfers:
        outputs = self._tables["outputs"][transfers["output"]]
        is_tensor = outputs["order"] < self._problem.num_tensors
        return Transfers(
            tensors=np.where(is_tensor, outputs["order"], np.int32(-1)),
            producers=outputs["producer"].copy(),
            sources=transfers["source"].copy(),
            destinations=transfers["destination"].copy(),
            bytes=outputs["bytes"].copy(),
            request_secs=transfers["request_secs"].copy(),
            start_secs=transfers["start_secs"].copy(),
            end_secs=transfers["end_secs"].copy(),
            causes=number[transfers["cause"]],
            hold_secs=transfers["hold_secs"].copy(),
            begin_moments=transfers["begin_moment"].copy(),
            end_moments=transfers["end_moment"].copy(),
        )

    def _check_placements(self, placements: np.ndarray) -> np.ndarray:
        """Checks every index of placements, and makes them int32 [num_placements, num_groups]."""
        num_groups, num_devices = self._problem.num_groups, self._problem.num_devices
        if placements.ndim != 2 or placements.shape[1] != num_groups:
            raise ValueError(
                f"placements must have the shape [n, {num_groups}], not {list(placements.shape)}"
            )
        if not np.issubdtype(placements.dtype, np.integer):
            raise ValueError(f"placements must be integers, not {placements.dtype}")
        if placements.size and (placements.min() < 0 or placements.max() >= num_devices):
            index, group = np.argwhere((placements < 0) | (placements >= num_devices))[0].tolist()
            raise ValueError(
                f"placement {index} puts group {group} on device {placements[index, group]}, but "
                f"there are the devices 0 to {num_devices - 1}"
            )
        return np.ascontiguousarray(placements, np.int32)
