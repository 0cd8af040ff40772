"""Simulated annealing of one placement, in simulation."""

from __future__ import annotations

import math

import numpy as np

from tf_placer.placers.auto.chain import Chain, ChainPlan
from tf_placer.placers.auto.found import Found
from tf_placer.placers.auto.levels import Level
from tf_placer.placers.auto.moves import make_drawn_move, make_move_tables
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs
from tf_placer.simulation.simulator import Simulator

__all__ = ["Annealer"]

# So many operations are simulated while room is made for a move, and at least as many until room is
# made again: half of the time is for moves that need none.
_OPERATIONS_PER_REPAIR = 1000


class Annealer:
    """One chain: moves that make the step shorter are taken, others with a probability.

    While the placement does not fit, the bytes that are too many are annealed instead of the step.
    Once it fits, nothing that does not fit is taken: a move that puts too much on a device takes
    others off it, or is dropped.

    References:
        Kirkpatrick, Gelatt and Vecchi, Optimization by Simulated Annealing, Science 220, 1983.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        simulator: Simulator,
        legal: np.ndarray,
        levels: tuple[Level, ...],
        start: Found,
        *,
        seed: int,
        looks: bool = True,
    ) -> None:
        """Starts a chain.

        Args:
            problem: what is placed.
            simulator: of the problem.
            legal: bool [num_groups, num_devices].
            levels: what moves take along.
            start: where the chain starts.
            seed: of everything random.
            looks: whether it looks at the critical path, where most moves then begin.
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
            looks=looks,
        )
        self._steps_per_repair = _OPERATIONS_PER_REPAIR // problem.num_operations
        self._steps_to_repair = 0
        self.restart(start)

    @property
    def best(self) -> Found:
        """The best placement so far."""
        return self._chain.best

    @property
    def placement(self) -> np.ndarray:
        """Where the chain is, int32 [num_groups]."""
        return self._chain.placement.copy()

    @property
    def num_simulated(self) -> int:
        """How many placements were simulated."""
        return self._chain.num_simulated

    def restart(self, start: Found) -> None:
        """Goes on from another placement."""
        self._chain.restart(np.ascontiguousarray(start.placement, np.int32))

    def run(self, steps: int, plan: ChainPlan, *, max_simulated: float = math.inf) -> None:
        """Makes some steps of the chain.

        Args:
            steps: how many.
            plan: how.
            max_simulated: how many placements to simulate at most.
        """
        is_given = False
        # What room was made for is judged even if that took all steps.
        while (steps > 0 or is_given) and max_simulated >= 1:
            already = self.num_simulated
            count = int(max(0, min(steps, max_simulated - is_given)))
            is_overfull, made = self._chain.anneal(
                plan, count, is_given=is_given, fitting_steps=self._steps_to_repair
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
        """Extends a move that does not fit, if there is room for what has to go."""
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
