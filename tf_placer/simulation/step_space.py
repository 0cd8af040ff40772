"""Working memory of the compiled core, which simulates steps one at a time."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

from tf_placer.native.library import core, make_owner, pointer_to
from tf_placer.simulation.step_tables import StepTables

__all__ = ["RawTrace", "StepSpace"]

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
class RawTrace:
    """The trace of one step as the compiled core returns it.

    Attributes:
        step_secs: the step time.
        peak_bytes: int64 [num_devices], the peak memory of each device.
        times: [num_operations], records of `start_secs` and `end_secs`.
        ready_secs, causes, moments: see `StepTrace` in `simulator.py`, but transfers are numbered
            in the order of their requests.
        transfers: [num_transfers], records in the order of the requests: `order` is the position
            among the requests of one instant, `output` a row of the table of outputs, `cause` the
            job that the transfer waited for last.
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
        """Allocates the memory.

        Args:
            tables: the problem.

        Raises:
            MemoryError: there is not enough memory.
        """
        self._tables = tables
        self._step = core().tf_placer_make_step(ctypes.byref(tables))
        if not self._step:
            raise MemoryError(f"no memory to simulate {tables.num_operations:,} operations")
        self._owner = make_owner(self._step, core().tf_placer_free_step)

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
            step_secs: float64 [num_placements], gets the step times; infinite if a placement is not
                legal, or if its step is longer than the limit and was not simulated to its end.
            is_legal: bool [num_placements], gets whether every group may go to its device.
            peak_bytes: int64 [num_placements, num_devices], gets the peak memory of each device; 0
                if the step time is infinite or memory is not simulated.
            memory: whether to simulate memory.
            limit_secs: steps longer than this need not be simulated to their end.
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

    def trace(self, placement: np.ndarray) -> RawTrace:
        """Simulates one step in full detail.

        Args:
            placement: int32 [num_groups], a legal placement.

        Raises:
            MemoryError: there is not enough memory.
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
        return RawTrace(
            step_secs.value,
            peak_bytes,
            times,
            ready_secs,
            causes,
            moments,
            transfers[:num_transfers].copy(),
        )
