"""Simulated annealing of one placement, in simulation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tf_placer.placers.auto.annealing_steps import (
    BASE,
    GIVEN,
    GO_ON,
    OVERFULL,
    anneal,
    make_chain,
)
from tf_placer.placers.auto.found import Found
from tf_placer.placers.auto.hot_spots import hot_spots
from tf_placer.placers.auto.levels import Level
from tf_placer.placers.auto.moves import make_drawn_move, make_move_tables, no_hot_spots
from tf_placer.placers.auto.repair import MemoryRepair
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs
from tf_placer.simulation.incremental import IncrementalSimulator
from tf_placer.simulation.simulator import Simulator

__all__ = ["Annealer", "ChainPlan"]

# After how many steps of the chain the critical path is looked at again. A look costs about as much
# as ten steps of a large graph; of a small one, many steps cost less than a call.
_STEPS_PER_LOOK, _OPERATIONS_PER_LOOK = 100, 500_000
# So many operations are simulated while room is made for a move, and at least as many until room is
# made again: half of the time is for moves that need none.
_OPERATIONS_PER_REPAIR = 1000


@dataclasses.dataclass(frozen=True)
class ChainPlan:
    """How a chain goes on.

    Attributes:
        temperature: as a share of the step time; positive.
        coarse_share: how often moves take clusters rather than single groups, from 0 to 1.
        patience: after how many fruitless moves in a row to go on from the best placement with some
            groups elsewhere; 0 for never.
        kick: how many moves at once that are.

    References:
        Lourenço, Martin and Stützle, Iterated Local Search, Handbook of Metaheuristics, 2003.
    """

    temperature: float
    coarse_share: float
    patience: int = 0
    kick: int = 0


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
        incremental: IncrementalSimulator,
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
            simulator: of the problem, for a look at the critical path.
            incremental: of the problem, for this chain alone.
            legal: bool [num_groups, num_devices].
            levels: what moves take along.
            start: where the chain starts.
            seed: of everything random.
            looks: whether it looks at the critical path, where most moves then begin.
        """
        secs = device_secs(problem)
        work_secs = np.where(np.isfinite(secs), secs, np.inf).min(axis=1)
        seeds = np.random.SeedSequence(seed).spawn(2)
        self._random = np.random.default_rng(seeds[0])
        self._tables = make_move_tables(
            levels, legal, np.where(np.isfinite(work_secs), work_secs, 0)
        )
        self._drawn = make_drawn_move(problem.num_groups)
        self._repair = MemoryRepair(problem, legal, seeds[1])
        self._simulator, self._space = simulator, incremental.space
        self._placement: np.ndarray = self._space[4].placement
        self._chain = make_chain(
            problem.num_groups, np.array([device.memory_bytes for device in problem.devices])
        )
        # A look costs as much as some steps, a call as much as a few operations.
        self._steps_per_repair = _OPERATIONS_PER_REPAIR // problem.num_operations
        self._steps_per_look = max(_STEPS_PER_LOOK, _OPERATIONS_PER_LOOK // problem.num_operations)
        self._hot, self._seen, self._steps_to_look = no_hot_spots(), start.placement, 0
        self._steps_to_repair = 0
        self._looks = looks
        self.restart(start)

    @property
    def best(self) -> Found:
        """The best placement so far."""
        record = self._chain.record[0]
        return Found(
            self._chain.best_placement.copy(),
            float(record["best_secs"]),
            self._chain.best_peak_bytes.copy(),
            int(record["best_excess_bytes"]),
        )

    @property
    def num_simulated(self) -> int:
        """How many placements were simulated."""
        return int(self._chain.record["num_simulated"][0])

    def restart(self, start: Found) -> None:
        """Goes on from another placement."""
        self._hot, self._steps_to_look = no_hot_spots(), 0
        self._anneal(BASE, 0, ChainPlan(1.0, 0.0), start.placement)

    def run(self, steps: int, plan: ChainPlan, *, max_simulated: float = math.inf) -> None:
        """Makes some steps of the chain.

        Args:
            steps: how many.
            plan: how.
            max_simulated: how many placements to simulate at most.
        """
        first = GO_ON
        # What room was made for is judged even if that took all steps.
        while (steps > 0 or first == GIVEN) and max_simulated >= 1:
            self._look()
            already = self.num_simulated
            count = int(max(0, min(steps, self._steps_to_look, max_simulated - (first == GIVEN))))
            reason, made = self._anneal(first, count, plan)
            max_simulated -= self.num_simulated - already
            made -= first == GIVEN
            first = GO_ON
            self._steps_to_repair = max(0, self._steps_to_repair - made)
            if reason == OVERFULL:
                self._steps_to_repair = self._steps_per_repair
                made += self._steps_per_repair
                first = GIVEN if self._make_room() else GO_ON
            steps -= made
            self._steps_to_look -= made

    def _look(self) -> None:
        """Finds what the step waits for, if that was long ago."""
        if self._steps_to_look > 0:
            return
        self._steps_to_look = self._steps_per_look
        if not self._looks:
            return
        # What the step waited for some moves ago is still a better guess than none.
        placement = self._placement
        if not len(self._hot.groups) or (placement != self._seen).any():
            self._hot = hot_spots(self._simulator.trace(placement))
            self._seen = placement.copy()

    def _anneal(
        self, first: int, steps: int, plan: ChainPlan, start: np.ndarray | None = None
    ) -> tuple[int, int]:
        reason, made = anneal(
            self._space,
            self._tables,
            self._hot,
            self._drawn,
            self._chain,
            self._random,
            self._chain.all_groups if start is None else start.astype(np.int64),
            first,
            steps,
            plan.temperature,
            plan.coarse_share,
            plan.patience,
            plan.kick,
            self._steps_to_repair,
        )
        return reason, made

    def _make_room(self) -> bool:
        """Extends a move that does not fit, if there is room for what has to go."""
        count = self._chain.record["num_moved"][0]
        change = self._repair.repair(
            self._placement,
            self._drawn.groups[:count],
            self._drawn.devices[:count],
            self._chain.peak_bytes,
            self._chain.capacities,
        )
        if change is None:
            return False
        groups, devices = change
        self._drawn.groups[: len(groups)] = groups
        self._drawn.devices[: len(devices)] = devices
        self._chain.record["num_moved"] = len(groups)
        return True
