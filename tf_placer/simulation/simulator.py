"""What one step of a placement would take: many placements a second, or one in every detail."""

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

# Placements that one thread simulates before it looks for more.
_MAX_CHUNK = 64


@dataclasses.dataclass(frozen=True, eq=False)
class SimulatedBatch:
    """What the placements of a batch would take.

    Attributes:
        step_secs: float64 [num_placements], seconds of one step; infinite if an operation is where
            it may not go, or if it is only known that the step is longer than the limit.
        peak_bytes: int64 [num_placements, num_devices], the most that each device holds at once; 0
            if the step time is infinite, or if memory is left out of account.
        feasible: bool [num_placements], whether the step time is known, every operation is where it
            may go and no device holds more than it can.
    """

    step_secs: np.ndarray
    peak_bytes: np.ndarray
    feasible: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Transfers:
    """The transfers of a step in the order in which they ended.

    Attributes:
        tensors: int32 [num_transfers], the tensor; -1 for the signal to control successors.
        producers: int32 [num_transfers], the operation that made it.
        sources: int32 [num_transfers], the device that it came from.
        destinations: int32 [num_transfers], the device that it went to.
        bytes: int64 [num_transfers].
        request_secs: float64 [num_transfers], when its producer ended; from or to an asynchronous
            device, when that had done what it had been handed by then, and the transfer before it
            of the same kind had ended.
        start_secs: float64 [num_transfers], when its channel was free for it.
        end_secs: float64 [num_transfers], when the readers on the destination had it.
        causes: int32 [num_transfers], the job that each waited for last; see `StepTrace.causes`.
        hold_secs: float64 [num_transfers], when the destination began to hold it.
        begin_moments: int64 [num_transfers], when it was requested; see `StepTrace.moments`.
        end_moments: int64 [num_transfers], when it ended, likewise.
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
        problem: what was simulated.
        operation_devices: int32 [num_operations], the device of each operation.
        start_secs: float64 [num_operations], when each started, counted from the start of the step.
        end_secs: float64 [num_operations], when each ended.
        ready_secs: float64 [num_operations], when the last of its inputs was there, or when it was
            handed to its asynchronous device.
        causes: int32 [num_operations], the job that each waited for last, and started when that had
            ended; -1 for none. Jobs are the operations and, numbered behind them, the transfers.
        moments: int64 [num_operations], when it was handed to its asynchronous device: a place
            among all that is handed over, and the requests and ends of transfers, in the order in
            which that was done. -1 on other devices.
        transfers: what went from device to device.
        peak_bytes: int64 [num_devices], the most that each device held at once.
        step_secs: when the last operation ended.
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

    Results are the same whatever the number of threads. One simulator may be used from several
    threads at once.
    """

    def __init__(
        self, problem: PlacementProblem, *, memory: bool = True, threads: int | None = None
    ) -> None:
        """Prepares the simulation.

        Args:
            problem: what to place.
            memory: False leaves the memory out of account, which is faster.
            threads: how many placements are simulated at once; None: as many as this process may
                use cores.
        """
        self._threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self._threads < 1:
            raise ValueError(f"threads must be at least 1, not {threads}")
        self._problem = problem
        self._memory = memory
        self._tables = make_tables(problem)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        # What no thread works with at the moment.
        self._spaces: queue.SimpleQueue[StepSpace] = queue.SimpleQueue()
        for _ in range(self._threads):
            self._spaces.put(StepSpace(self._tables))
        self._executor = concurrent.futures.ThreadPoolExecutor(self._threads)

    @property
    def tables(self) -> StepTables:
        """The problem as the compiled core sees it."""
        return self._tables

    def simulate(self, placements: np.ndarray, *, limit_secs: float = math.inf) -> SimulatedBatch:
        """Simulates one step of each placement.

        Args:
            placements: int32 [num_placements, num_groups], the device index of each group.
            limit_secs: a step that is longer need not be simulated to its end, which saves most
                where most steps are longer.

        Returns:
            What they would take.

        Raises:
            ValueError: `placements` has another shape, or a device index is out of range.
        """
        placements = self._checked(np.asarray(placements))
        num_placements = len(placements)
        step_secs = np.empty(num_placements)
        legal = np.empty(num_placements, np.bool_)
        peak_bytes = np.empty([num_placements, self._problem.num_devices], np.int64)
        chunk = max(1, min(_MAX_CHUNK, -(-num_placements // self._threads)))

        def simulate_chunk(first: int) -> None:
            part = slice(first, first + chunk)
            space = self._spaces.get()
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
                self._spaces.put(space)

        firsts = range(0, num_placements, chunk)
        # Another thread is not worth its start for one chunk.
        run = map if self._threads == 1 or len(firsts) == 1 else self._executor.map
        collections.deque(run(simulate_chunk, firsts), maxlen=0)
        fits = (peak_bytes <= self._capacities).all(axis=1)
        return SimulatedBatch(step_secs, peak_bytes, np.isfinite(step_secs) & fits)

    def trace(self, placement: np.ndarray) -> StepTrace:
        """Simulates one step in every detail, memory included.

        Args:
            placement: int32 [num_groups], the device index of each group.

        Returns:
            When and where everything happened.

        Raises:
            ValueError: `placement` has another shape, a device index is out of range, or an
                operation is where it may not go.
        """
        placement = np.asarray(placement)
        if placement.shape != (self._problem.num_groups,):
            raise ValueError(
                f"a placement must have the shape [{self._problem.num_groups}], not "
                f"{list(placement.shape)}"
            )
        placement = self._checked(placement[np.newaxis])
        operation_devices = placement[0, self._problem.groups]
        secs = self._problem.compute_secs[np.arange(len(operation_devices)), operation_devices]
        if not np.isfinite(secs).all():
            operation = int(np.flatnonzero(~np.isfinite(secs))[0])
            raise ValueError(
                f"operation {self._problem.operation_names[operation]!r} may not go to device "
                f"{self._problem.devices[operation_devices[operation]].name!r}"
            )
        space = self._spaces.get()
        try:
            step = space.trace(placement[0])
        finally:
            self._spaces.put(space)
        # Transfers are known by the order in which they were requested.
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

    def _checked(self, placements: np.ndarray) -> np.ndarray:
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
