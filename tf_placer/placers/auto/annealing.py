"""Simulated annealing of one placement, in simulation."""

from __future__ import annotations

import math

import numpy as np

from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.chain import Chain, ChainParameters
from tf_placer.placers.auto.levels import Level
from tf_placer.placers.auto.moves import make_drawn_move, make_move_tables
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs
from tf_placer.simulation.simulator import Simulator

__all__ = ["Annealer"]

# Making room takes about as long as simulating this many operations. As many are simulated before
# room is made again, so that half of the time is left for moves that need no room.
_OPERATIONS_PER_REPAIR = 1000


class Annealer:
    """One annealing chain: it accepts moves that shorten the step, and others with a probability.

    While the placement does not fit, the excess bytes are annealed instead of the step time. Once
    it fits, only moves to placements that fit are accepted: a move that overfills a device moves
    other groups off it, or is rejected.

    References:
        Kirkpatrick, Gelatt and Vecchi, Optimization by Simulated Annealing, Science 220, 1983.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        simulator: Simulator,
        legal: np.ndarray,
        levels: tuple[Level, ...],
        start: Candidate,
        *,
        seed: int,
        follows_critical_path: bool = True,
    ) -> None:
        """Starts a chain.

        Args:
            problem: the placement problem.
            simulator: a simulator of the problem.
            legal: bool [num_groups, num_devices].
            levels: the partitions into clusters that move as one.
            start: the first placement of the chain.
            seed: seeds the moves and the choice of groups to make room.
            follows_critical_path: whether most moves start from the critical path.
        """
        secs = device_secs(problem)
        work_secs = np.where(np.isfinite(secs), secs, np.inf).min(axis=1)
        seeds = np.random.SeedSequence(seed).spawn(2)
        self._drawn = make_drawn_move(problem.num_groups)
        self._repair = MemoryRepair(problem, legal, seeds[1])
        self._chain = Chain(
            simulator.tables,
            make_move_tables(levels, legal, np.where(np.isfinite(work_secs), work_secs, 0)),
            self._drawn,
            np.random.default_rng(seeds[0]),
            np.array([device.memory_bytes for device in problem.devices], np.int64),
            follows_critical_path=follows_critical_path,
        )
        self._steps_per_repair = _OPERATIONS_PER_REPAIR // problem.num_operations
        self._steps_to_repair = 0
        self.restart(start)

    @property
    def best(self) -> Candidate:
        """The best placement so far."""
        return self._chain.best

    @property
    def placement(self) -> np.ndarray:
        """The current placement, int32 [num_groups]."""
        return self._chain.placement.copy()

    @property
    def num_simulated(self) -> int:
        """The number of placements simulated."""
        return self._chain.num_simulated

    def restart(self, start: Candidate) -> None:
        """Continues from another placement."""
        self._chain.restart(np.ascontiguousarray(start.placement, np.int32))

    def run(
        self, steps: int, parameters: ChainParameters, *, max_simulated: float = math.inf
    ) -> None:
        """Makes some steps of the chain.

        Args:
            steps: the number of steps.
            parameters: the temperature and the choice of moves.
            max_simulated: the most placements to simulate.
        """
        is_given = False
        # A move that room was made for is evaluated even if making room took all steps.
        while (steps > 0 or is_given) and max_simulated >= 1:
            already = self.num_simulated
            count = int(max(0, min(steps, max_simulated - is_given)))
            is_overfull, made = self._chain.anneal(
                parameters, count, is_given=is_given, fitting_steps=self._steps_to_repair
            )
            max_simulated -= self.num_simulated - already
            made -= is_given
            is_given = False
            self._steps_to_repair = max(0, self._steps_to_repair - made)
            if is_overfull:
                self._steps_to_repair = self._steps_per_repair
                made += self._steps_per_repair
                is_given = self._make_room()
            steps -= made

    def _make_room(self) -> bool:
        """Extends a move that does not fit by moves that make room, if there is room elsewhere."""
        count, groups, devices = (
            self._chain.num_moved,
            self._drawn["groups"],
            self._drawn["devices"],
        )
        change = self._repair.repair(
            self._chain.placement,
            groups[:count],
            devices[:count],
            self._chain.peak_bytes,
            self._chain.capacities,
        )
        if change is None:
            return False
        more_groups, more_devices = change
        groups[: len(more_groups)] = more_groups
        devices[: len(more_devices)] = more_devices
        self._chain.num_moved = len(more_groups)
        return True
