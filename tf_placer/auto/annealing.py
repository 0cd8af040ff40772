"""Simulated annealing of one placement, in simulation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tf_placer.auto.hot_spots import hot_spots
from tf_placer.auto.levels import Level
from tf_placer.auto.moves import HotSpots, Move, Moves
from tf_placer.auto.repair import MemoryRepair
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs
from tf_placer.simulation.incremental import IncrementalSimulator
from tf_placer.simulation.simulator import Simulator

__all__ = ["Annealer", "Found"]

# After how many steps of the chain the critical path is looked at again. A look costs about as much
# as ten steps.
_STEPS_PER_LOOK = 100


@dataclasses.dataclass(frozen=True, eq=False)
class Found:
    """A placement and what it takes.

    Attributes:
        placement: int32 [num_groups].
        step_secs: its step.
        peak_bytes: int64 [num_devices], the most that each device holds at once.
        excess_bytes: by how much that is more than they can, added up; 0 if it fits.
    """

    placement: np.ndarray
    step_secs: float
    peak_bytes: np.ndarray
    excess_bytes: int

    @property
    def rank(self) -> tuple[int, float]:
        """Lower is better: what fits comes first, then what is fast."""
        return (self.excess_bytes, self.step_secs)


class Annealer:
    """One chain: moves that make the step shorter are taken, others with a probability.

    While the placement does not fit, the bytes that are too many are annealed instead of the step.
    Once it fits, nothing that does not fit is taken: a move that puts too much on a device takes
    others off it, or is dropped.

    Attributes:
        best: the best placement so far.
        num_simulated: how many placements were simulated.

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
        """
        secs = device_secs(problem)
        work_secs = np.where(np.isfinite(secs), secs, np.inf).min(axis=1)
        seeds = np.random.SeedSequence(seed).spawn(3)
        self._random = np.random.default_rng(seeds[0])
        self._moves = Moves(levels, legal, np.where(np.isfinite(work_secs), work_secs, 0), seeds[1])
        self._repair = MemoryRepair(problem, legal, seeds[2])
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        self._simulator = simulator
        self._incremental = incremental
        self._hot: HotSpots | None = None
        self._seen: Found | None = None
        self._steps_to_look = 0
        self.num_simulated = 0
        self.best = start
        self.restart(start)

    @property
    def can_move(self) -> bool:
        """Whether there is anything to choose."""
        return self._moves.can_move

    def restart(self, start: Found) -> None:
        """Goes on from another placement."""
        self._incremental.set_base(start.placement)
        self._current = start
        self._hot, self._seen, self._steps_to_look = None, None, 0
        if start.rank < self.best.rank:
            self.best = start

    def run(self, steps: int, temperature: float, coarse_share: float) -> None:
        """Makes some steps of the chain.

        Args:
            steps: how many.
            temperature: as a share of the step time; positive.
            coarse_share: how often moves take clusters rather than single groups, from 0 to 1.
        """
        for _ in range(steps):
            self._look()
            move = self._moves.draw(self._current.placement, self._hot, coarse_share)
            if move is not None:
                self._try(move, temperature)

    def _look(self) -> None:
        self._steps_to_look -= 1
        if self._steps_to_look > 0:
            return
        self._steps_to_look = _STEPS_PER_LOOK
        # What the step waited for some moves ago is still a better guess than none.
        if self._seen is not self._current:
            self._hot = hot_spots(self._simulator.trace(self._current.placement))
            self._seen = self._current

    def _try(self, move: Move, temperature: float) -> None:
        current = self._current
        # How much worse may be taken is drawn first, so that what is worse need not be simulated
        # to its end.
        slack = 1.0 - temperature * math.log(1.0 - self._random.random())
        groups, devices = move.groups, np.full(len(move.groups), move.device, np.int32)
        if current.excess_bytes:
            found = self._evaluate(groups, devices, math.inf)
            if found is not None and found.excess_bytes <= current.excess_bytes * slack:
                self._take(groups, devices, found)
            return
        limit_secs = current.step_secs * slack
        found = self._evaluate(groups, devices, limit_secs)
        if found is not None and found.excess_bytes:
            change = self._repair.repair(
                current.placement, groups, devices, found.peak_bytes, self._capacities
            )
            if change is None:
                return
            groups, devices = change
            found = self._evaluate(groups, devices, limit_secs)
        if found is not None and not found.excess_bytes and found.step_secs <= limit_secs:
            self._take(groups, devices, found)

    def _evaluate(self, groups: np.ndarray, devices: np.ndarray, limit_secs: float) -> Found | None:
        """The placement with a change; None if its step is longer than the limit."""
        self.num_simulated += 1
        step = self._incremental.evaluate(groups, devices, limit_secs)
        if step.is_cut:
            return None
        placement = self._current.placement.copy()
        placement[groups] = devices
        excess = np.maximum(step.peak_bytes - self._capacities, 0).sum()
        return Found(placement, float(step.step_secs), step.peak_bytes, int(excess))

    def _take(self, groups: np.ndarray, devices: np.ndarray, found: Found) -> None:
        self._incremental.accept(groups, devices)
        self._current = found
        if found.rank < self.best.rank:
            self.best = found
