"""An annealing chain in the compiled core."""

from __future__ import annotations

import ctypes
import dataclasses

import numpy as np

from tf_placer.native.library import (
    Struct,
    array_of,
    core,
    int64,
    make_owner,
    pointer_to,
    random_struct,
)
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.moves import DrawnMove, MoveTables
from tf_placer.simulation.step_tables import StepTables

__all__ = ["Chain", "ChainParameters"]

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
_OVERFULL = 1  # `kOverfull` of `Chain::End`.


@dataclasses.dataclass(frozen=True)
class ChainParameters:
    """The parameters of the next steps of a chain.

    Attributes:
        temperature: as a share of the step time; positive.
        coarse_share: probability that a move takes a cluster rather than a single group.
        patience: fruitless moves in a row after which the chain restarts from a perturbation of
            its best placement; 0 for never.
        perturbation_moves: moves in a perturbation.

    References:
        Lourenço, Martin and Stützle, Iterated Local Search, Handbook of Metaheuristics, 2003.
    """

    temperature: float
    coarse_share: float
    patience: int = 0
    perturbation_moves: int = 0


class _State(Struct):
    _fields_ = (
        ("record", array_of(_RECORD)),
        ("placement", array_of(np.int32)),
        ("peak_bytes", array_of(np.int64)),
        ("best_placement", array_of(np.int32)),
        ("best_peak_bytes", array_of(np.int64)),
        ("capacities", array_of(np.int64)),
    )


class _Parameters(Struct):
    _fields_ = (
        ("temperature", ctypes.c_double),
        ("coarse_share", ctypes.c_double),
        ("patience", int64),
        ("perturbation_moves", int64),
        ("fitting_steps", int64),
    )


class Chain:
    """The state of a chain: its current and its best placement. One thread may use it at a time."""

    def __init__(
        self,
        tables: StepTables,
        moves: MoveTables,
        drawn: DrawnMove,
        random: np.random.Generator,
        capacities: np.ndarray,
        *,
        follows_critical_path: bool = True,
    ) -> None:
        """Makes a chain without a placement; call `restart` before `anneal`.

        Args:
            tables: the problem.
            moves: tables to draw moves from.
            drawn: receives the drawn moves.
            random: draws the moves.
            capacities: int64 [num_devices], the memory of the devices in bytes.
            follows_critical_path: whether most moves start from the critical path.

        Raises:
            MemoryError: the host has too little memory.
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
            ctypes.byref(tables),
            ctypes.byref(self._state),
            ctypes.byref(drawn),
            follows_critical_path,
        )
        if not self._chain:
            raise MemoryError(f"no memory to simulate {tables.num_operations:,} operations")
        self._owner = make_owner(self._chain, core().tf_placer_free_chain)

    @property
    def placement(self) -> np.ndarray:
        """The current placement, int32 [num_groups]."""
        return self._state["placement"]

    @property
    def peak_bytes(self) -> np.ndarray:
        """The peak bytes of the devices in the last simulated placement, int64 [num_devices]."""
        return self._state["peak_bytes"]

    @property
    def capacities(self) -> np.ndarray:
        """The memory of the devices in bytes, int64 [num_devices]."""
        return self._state["capacities"]

    @property
    def num_moved(self) -> int:
        """The number of groups in the last move; further entries of `drawn` are unused."""
        return int(self._state["record"]["num_moved"][0])

    @num_moved.setter
    def num_moved(self, count: int) -> None:
        self._state["record"]["num_moved"] = count

    @property
    def num_simulated(self) -> int:
        """The number of placements simulated."""
        return int(self._state["record"]["num_simulated"][0])

    @property
    def best(self) -> Candidate:
        """The best placement so far."""
        record = self._state["record"][0]
        return Candidate(
            self._state["best_placement"].copy(),
            float(record["best_secs"]),
            self._state["best_peak_bytes"].copy(),
            int(record["best_excess_bytes"]),
        )

    def restart(self, placement: np.ndarray) -> None:
        """Continues from another legal placement, int32 [num_groups]."""
        core().tf_placer_restart(self._chain, pointer_to(placement, np.int32))

    def anneal(
        self, parameters: ChainParameters, num_steps: int, *, is_given: bool, fitting_steps: int
    ) -> tuple[bool, int]:
        """Makes some steps.

        Args:
            parameters: the temperature and the choice of moves.
            num_steps: the most steps to make.
            is_given: whether the first move is drawn already and comes beside these steps.
            fitting_steps: first steps that reject a move that does not fit, instead of returning
                so that the caller makes room.

        Returns:
            Whether it returned because the caller has to make room for the last move, and the
            number of steps made.
        """
        num_made = int64()
        end = core().tf_placer_anneal(
            self._chain,
            ctypes.byref(self._moves),
            ctypes.byref(self._random),
            ctypes.byref(
                _Parameters(**dataclasses.asdict(parameters), fitting_steps=fitting_steps)
            ),
            is_given,
            num_steps,
            ctypes.byref(num_made),
        )
        if end < 0:
            raise MemoryError("no memory to restart from another placement")
        return end == _OVERFULL, num_made.value
