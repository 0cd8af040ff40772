"""A chain of simulated annealing in the compiled core."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

from tf_placer.native.library import Struct, array_of, core, int64, owned, pointer_to, random_struct
from tf_placer.placers.auto.found import Found
from tf_placer.placers.auto.moves import DrawnMove, MoveTables
from tf_placer.simulation.step_tables import StepTables

__all__ = ["Chain", "ChainPlan"]

# The record of `native/annealing.h`.
_RECORD = np.dtype(
    [
        ("step_secs", np.float64),
        ("limit_secs", np.float64),
        ("cut_share", np.float64),
        ("excess_bytes", np.int64),
        ("num_moved", np.int64),
        ("num_simulated", np.int64),
        ("num_fruitless", np.int64),
        ("climb_secs", np.float64),
        ("best_secs", np.float64),
        ("best_excess_bytes", np.int64),
    ]
)
_OVERFULL = 1  # of `Chain::End`


@dataclasses.dataclass(frozen=True)
class ChainPlan:
    """How a chain goes on.

    Attributes:
        temperature: as a share of the step time; positive.
        coarse_share: how often moves take clusters rather than single groups, from 0 to 1.
        patience: after how many fruitless moves in a row to go on from the best placement with some
            groups elsewhere; 0 for never.
        kick: how many moves at once that is.

    References:
        Lourenço, Martin and Stützle, Iterated Local Search, Handbook of Metaheuristics, 2003.
    """

    temperature: float
    coarse_share: float
    patience: int = 0
    kick: int = 0


class _State(Struct):
    _fields_ = (
        ("record", array_of(_RECORD)),
        ("placement", array_of(np.int32)),
        ("peak_bytes", array_of(np.int64)),
        ("best_placement", array_of(np.int32)),
        ("best_peak_bytes", array_of(np.int64)),
        ("capacities", array_of(np.int64)),
    )


class _Plan(Struct):
    _fields_ = (
        ("temperature", ctypes.c_double),
        ("coarse_share", ctypes.c_double),
        ("patience", int64),
        ("kick", int64),
        ("fitting_steps", int64),
    )


class Chain:
    """Where a chain is, and the best that it found. It works for one thread at a time."""

    def __init__(
        self,
        tables: StepTables,
        moves: MoveTables,
        drawn: DrawnMove,
        random: np.random.Generator,
        capacities: np.ndarray,
        *,
        looks: bool = True,
    ) -> None:
        """Makes a chain that is nowhere yet.

        Args:
            tables: the problem.
            moves: what moves are drawn from.
            drawn: gets the moves.
            random: what they are drawn with.
            capacities: int64 [num_devices], how many bytes the devices can hold.
            looks: whether it looks at the critical path, where most moves then begin.

        Raises:
            MemoryError: it does not fit.
        """
        record = np.zeros(1, _RECORD)
        record["cut_share"] = 1.0
        record["best_secs"] = np.inf
        record["best_excess_bytes"] = np.iinfo(np.int64).max
        self._tables, self._moves, self._drawn = tables, moves, drawn
        self._random = random_struct(random)
        self._state = _State(
            record=record,
            placement=np.zeros(tables.num_groups, np.int32),
            peak_bytes=np.zeros(tables.num_devices, np.int64),
            best_placement=np.zeros(tables.num_groups, np.int32),
            best_peak_bytes=np.zeros(tables.num_devices, np.int64),
            capacities=capacities,
        )
        self._chain = core().tf_placer_make_chain(
            ctypes.byref(tables), ctypes.byref(self._state), ctypes.byref(drawn), looks
        )
        if not self._chain:
            raise MemoryError(f"no memory to simulate {tables.num_operations:,} operations")
        self._owner = owned(self._chain, core().tf_placer_free_chain)

    @property
    def placement(self) -> np.ndarray:
        """Where the chain is, int32 [num_groups]."""
        return self._state["placement"]

    @property
    def peak_bytes(self) -> np.ndarray:
        """What devices hold at most with the last placement that was simulated, int64."""
        return self._state["peak_bytes"]

    @property
    def capacities(self) -> np.ndarray:
        """How many bytes the devices can hold, int64 [num_devices]."""
        return self._state["capacities"]

    @property
    def num_moved(self) -> int:
        """How many groups the last move has, of which the first so many count."""
        return int(self._state["record"]["num_moved"][0])

    @num_moved.setter
    def num_moved(self, count: int) -> None:
        self._state["record"]["num_moved"] = count

    @property
    def num_simulated(self) -> int:
        """How many placements were simulated."""
        return int(self._state["record"]["num_simulated"][0])

    @property
    def best(self) -> Found:
        """The best placement so far."""
        record = self._state["record"][0]
        return Found(
            self._state["best_placement"].copy(),
            float(record["best_secs"]),
            self._state["best_peak_bytes"].copy(),
            int(record["best_excess_bytes"]),
        )

    def restart(self, placement: np.ndarray) -> None:
        """Goes on from another placement, int32 [num_groups], which is legal."""
        core().tf_placer_restart(self._chain, pointer_to(placement, np.int32))

    def anneal(
        self, plan: ChainPlan, num_steps: int, *, is_given: bool, fitting_steps: int
    ) -> tuple[bool, int]:
        """Makes some steps.

        Args:
            plan: how.
            num_steps: how many, at most.
            is_given: whether the first move is drawn already, which makes one more.
            fitting_steps: so many steps take only what fits, and nobody is asked for room.

        Returns:
            Whether it ended because somebody has to make room for the last move, and how many steps
            were made.
        """
        num_made = int64()
        end = core().tf_placer_anneal(
            self._chain,
            ctypes.byref(self._moves),
            ctypes.byref(self._random),
            ctypes.byref(_Plan(**dataclasses.asdict(plan), fitting_steps=fitting_steps)),
            is_given,
            num_steps,
            ctypes.byref(num_made),
        )
        if end < 0:
            raise MemoryError("no memory to go on from another placement")
        return end == _OVERFULL, num_made.value
