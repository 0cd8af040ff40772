"""Placements with their simulated step times and memory."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["Candidate", "simulate_candidates"]


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A placement with its simulated step time and memory.

    Attributes:
        placement: int32 [num_groups].
        step_secs: its step time.
        peak_bytes: int64 [num_devices], the most that each device holds at once.
        excess_bytes: the sum of bytes that exceed the memory of devices; 0 if it fits.
    """

    placement: np.ndarray
    step_secs: float
    peak_bytes: np.ndarray
    excess_bytes: int

    @property
    def rank(self) -> tuple[int, float]:
        """The sort key, best first: by the excess bytes, then by the step time."""
        return (self.excess_bytes, self.step_secs)


def simulate_candidates(
    problem: PlacementProblem, simulator: Simulator, placements: np.ndarray
) -> list[Candidate]:
    """Simulates placements.

    Args:
        problem: the placement problem.
        simulator: a simulator of the problem.
        placements: int32 [count, num_groups].
    """
    simulated = simulator.simulate(placements)
    capacities = np.array([device.memory_bytes for device in problem.devices])
    excess = np.maximum(simulated.peak_bytes - capacities, 0).sum(axis=1)
    return [
        Candidate(placement, float(secs), peaks, int(too_much))
        for placement, secs, peaks, too_much in zip(
            placements, simulated.step_secs, simulated.peak_bytes, excess, strict=True
        )
    ]
