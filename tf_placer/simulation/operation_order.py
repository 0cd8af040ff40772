"""A search of the order in which asynchronous devices are handed their operations.

TensorFlow hands a GPU what is ready in the order in which it became so, far ahead of its execution.
Copies wait for all that was handed over before, so that where branches run side by side, the order
decides what waits for what. Control edges between operations of one device set it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time

import numpy as np

from tf_placer.native.library import Struct, array_of, core, make_owner, pointer_to, random_struct
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_tables import StepTables

__all__ = ["OperationOrder", "find_order"]

# As a share of the step time.
_TEMPERATURE = 1e-4
# The number of operations that are simulated between two looks at the clock, about.
_OPERATIONS_PER_CALL = 200_000


@dataclasses.dataclass(frozen=True, eq=False)
class OperationOrder:
    """An order of the operations of asynchronous devices.

    Attributes:
        edges: int32 [num_edges, 2], the control edges that set it: (operation, the next one that
            its device is handed).
        step_secs: the simulated step time with the control edges.
        unordered_secs: the simulated step time without them.
    """

    edges: np.ndarray
    step_secs: float
    unordered_secs: float


def find_order(
    problem: PlacementProblem,
    placement: np.ndarray,
    may_wait: np.ndarray,
    *,
    max_secs: float,
    seed: int = 0,
) -> OperationOrder:
    """Searches the order that makes the step of a placement short, by simulated annealing.

    A change lets an operation of the critical path be handed over before one that it waited for.

    Args:
        problem: the placement problem.
        placement: int32 [num_groups], a legal placement.
        may_wait: bool [num_operations], the operations that control edges may connect.
        max_secs: the time to search, in seconds.
        seed: seeds the changes.

    Returns:
        The best order; without edges if none was found in which the step is shorter, or fits where
        it does not without.

    Raises:
        MemoryError: there is not enough memory.
    """
    placement = np.ascontiguousarray(placement, np.int32)
    simulator = Simulator(problem)
    unordered = simulator.simulate(placement[np.newaxis])
    unordered_secs = float(unordered.step_secs[0])
    capacities = np.array([device.memory_bytes for device in problem.devices], np.int64)
    search = _OrderSearch(simulator.tables, placement, may_wait, capacities, seed)
    end = time.monotonic() + max_secs
    while time.monotonic() < end:
        search.anneal(max(1, _OPERATIONS_PER_CALL // problem.num_operations))
    control_edges = np.concatenate([problem.control_edges, search.edges])
    changed = dataclasses.replace(problem, control_edges=control_edges)
    ordered = Simulator(changed).simulate(placement[np.newaxis])
    fits_now = bool(ordered.feasible[0]) > bool(unordered.feasible[0])
    step_secs = float(ordered.step_secs[0])
    if ordered.feasible[0] and (step_secs < unordered_secs or fits_now):
        return OperationOrder(search.edges, step_secs, unordered_secs)
    return OperationOrder(np.zeros([0, 2], np.int32), unordered_secs, unordered_secs)


class _OrderState(Struct):
    _fields_ = (
        ("best_secs", array_of(np.float64)),
        ("next", array_of(np.int32)),
        ("capacities", array_of(np.int64)),
        ("may_wait", array_of(np.bool_)),
    )


class _OrderSearch:
    """A search of an order in the compiled core."""

    def __init__(
        self,
        tables: StepTables,
        placement: np.ndarray,
        may_wait: np.ndarray,
        capacities: np.ndarray,
        seed: int,
    ) -> None:
        self._tables = tables
        self._state = _OrderState(
            best_secs=np.full(1, np.inf),
            next=np.full(tables.num_operations, -1, np.int32),
            capacities=capacities,
            may_wait=np.ascontiguousarray(may_wait, np.bool_),
        )
        self._random = random_struct(np.random.default_rng(seed))
        self._space = core().tf_placer_make_order(
            ctypes.byref(tables), ctypes.byref(self._state), pointer_to(placement, np.int32)
        )
        if not self._space:
            raise MemoryError(f"no memory to simulate {tables.num_operations:,} operations")
        self._owner = make_owner(self._space, core().tf_placer_free_order)

    @property
    def edges(self) -> np.ndarray:
        following = self._state["next"]
        before = np.flatnonzero(following >= 0).astype(np.int32)
        return np.stack([before, following[before]], axis=1)

    def anneal(self, num_changes: int) -> None:
        done = core().tf_placer_anneal_order(
            self._space, ctypes.byref(self._random), _TEMPERATURE, num_changes
        )
        if done < 0:
            raise MemoryError("no memory to search an order")
