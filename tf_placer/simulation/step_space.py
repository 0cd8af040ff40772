"""Simulates steps in the compiled core, one at a time."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

from tf_placer.native.library import core, owned, pointer_to
from tf_placer.simulation.step_tables import StepTables

__all__ = ["StepSpace", "TracedStep"]

# The records of `native/step.h` and `native/core.cc`.
_TIMES = np.dtype([("start_secs", np.float64), ("end_secs", np.float64)])
_TRACED_TRANSFER = np.dtype(
    [
        ("request_secs", np.float64),
        ("start_secs", np.float64),
        ("end_secs", np.float64),
        ("hold_secs", np.float64),
        ("begin_moment", np.int64),
        ("end_moment", np.int64),
        ("order", np.int64),
        ("output", np.int32),
        ("source", np.int32),
        ("destination", np.int32),
        ("cause", np.int32),
    ]
)


@dataclasses.dataclass(frozen=True, eq=False)
class TracedStep:
    """One step in every detail.

    Attributes:
        step_secs: how long it is.
        peak_bytes: int64 [num_devices], the most that each device holds at once.
        times: [num_operations], records of `start_secs` and `end_secs`.
        ready_secs: float64 [num_operations], when the last of their inputs was there, or when they
            were handed to an asynchronous device.
        causes: int32 [num_operations], the job that each waited for last; -1 for none. Jobs are the
            operations and, numbered behind them, the transfers.
        moments: int64 [num_operations], when each was handed to its asynchronous device, among all
            that and the requests and ends of transfers; -1 on other devices.
        transfers: [num_transfers], records, in the order in which they were requested: `order` is
            the place among the requests of one instant, `output` a row of the table of outputs,
            `cause` the job that it waited for last.
    """

    step_secs: float
    peak_bytes: np.ndarray
    times: np.ndarray
    ready_secs: np.ndarray
    causes: np.ndarray
    moments: np.ndarray
    transfers: np.ndarray


class StepSpace:
    """Working space for the steps of one problem, for one thread at a time."""

    def __init__(self, tables: StepTables) -> None:
        """Makes the space.

        Args:
            tables: the problem.

        Raises:
            MemoryError: it does not fit.
        """
        self._tables = tables
        self._step = core().tf_placer_make_step(ctypes.byref(tables))
        if not self._step:
            raise MemoryError(f"no memory to simulate {tables.num_operations:,} operations")
        self._owner = owned(self._step, core().tf_placer_free_step)

    def simulate(
        self,
        placements: np.ndarray,
        step_secs: np.ndarray,
        is_legal: np.ndarray,
        peak_bytes: np.ndarray,
        *,
        memory: bool,
        limit_secs: float,
    ) -> None:
        """Simulates one step per placement.

        Args:
            placements: int32 [num_placements, num_groups], device indices in range.
            step_secs: float64 [num_placements], gets the step times; infinite where not legal, or
                where it is only known that the step is longer than the limit.
            is_legal: bool [num_placements], gets whether every group may go where it was put.
            peak_bytes: int64 [num_placements, num_devices], gets the most that each device holds; 0
                where the step time is infinite, or memory is left out of account.
            memory: whether it is in the account.
            limit_secs: a step that is longer need not be simulated to its end.
        """
        core().tf_placer_simulate(
            self._step,
            pointer_to(placements, np.int32),
            len(placements),
            memory,
            limit_secs,
            pointer_to(step_secs, np.float64),
            pointer_to(is_legal, np.bool_),
            pointer_to(peak_bytes, np.int64),
        )

    def trace(self, placement: np.ndarray) -> TracedStep:
        """Simulates one step in every detail.

        Args:
            placement: int32 [num_groups], legal.

        Raises:
            MemoryError: it does not fit.
        """
        tables, step_secs = self._tables, ctypes.c_double()
        peak_bytes = np.zeros(tables.num_devices, np.int64)
        times = np.zeros(tables.num_operations, _TIMES)
        ready_secs = np.zeros(tables.num_operations)
        causes = np.zeros(tables.num_operations, np.int32)
        moments = np.zeros(tables.num_operations, np.int64)
        transfers = np.empty(tables.max_transfers, _TRACED_TRANSFER)
        num_transfers = core().tf_placer_trace(
            self._step,
            pointer_to(placement, np.int32),
            ctypes.byref(step_secs),
            pointer_to(peak_bytes, np.int64),
            pointer_to(times, _TIMES),
            pointer_to(ready_secs, np.float64),
            pointer_to(causes, np.int32),
            pointer_to(moments, np.int64),
            pointer_to(transfers, _TRACED_TRANSFER),
        )
        if num_transfers < 0:
            raise MemoryError(f"no memory to trace {tables.num_operations:,} operations")
        return TracedStep(
            step_secs.value,
            peak_bytes,
            times,
            ready_secs,
            causes,
            moments,
            transfers[:num_transfers].copy(),
        )
