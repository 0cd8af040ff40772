"""An exhaustive search of a small problem."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tf_placer.placers.auto.all_placements import AllPlacements
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["ExhaustiveSearch"]

_SAMPLED_HEADS = 64
# The fastest of several batches counts, because other processes may slow down some of them.
_TIMED_BATCHES, _MAX_TIMED_PLACEMENTS = 4, 512
_SECS_PER_REJECTED_PLACEMENT = 2e-7


class ExhaustiveSearch:
    """Simulates the promising placements, many at a time."""

    def __init__(
        self, problem: PlacementProblem, simulator: Simulator, seed: int | np.random.SeedSequence
    ) -> None:
        """Prepares the search.

        Args:
            problem: the placement problem; with at most some hundred millions of placements.
            simulator: a simulator of the problem.
            seed: seeds the sample that the estimate of the effort rests on.
        """
        self._placements = AllPlacements(problem)
        self._simulator = simulator
        self._random = np.random.default_rng(seed)

    def estimate_effort(self, limit_secs: float) -> tuple[float, float]:
        """Estimates the effort to find all placements that are faster than a limit.

        Args:
            limit_secs: the step time to beat.

        Returns:
            The number of placements to simulate, and the seconds that this takes. The search may
            take less, because every faster step leaves fewer promising placements.
        """
        rows, count = self._placements.sample(limit_secs, _SAMPLED_HEADS, self._random)
        parts = np.array_split(rows, _TIMED_BATCHES)
        each_secs = min(self._time(part[:_MAX_TIMED_PLACEMENTS], limit_secs) for part in parts)
        return count, each_secs * count + _SECS_PER_REJECTED_PLACEMENT * self._placements.size

    def run(self, limit_secs: float) -> Iterator[tuple[Candidate | None, int]]:
        """Simulates all placements that may be faster than a limit.

        Args:
            limit_secs: the step time to beat.

        Yields:
            After each batch, its fastest placement that fits if it is the best so far, else None;
            and the number of placements in the batch.
        """
        best_secs = limit_secs

        def get_limit() -> float:
            return best_secs

        for placements in self._placements.generate_promising(get_limit):
            batch = self._simulator.simulate(placements, limit_secs=best_secs)
            step_secs = np.where(batch.feasible, batch.step_secs, np.inf)
            at = int(np.argmin(step_secs))
            found = None
            if step_secs[at] < best_secs:
                best_secs = float(step_secs[at])
                found = Candidate(placements[at], best_secs, batch.peak_bytes[at], 0)
            yield found, len(placements)

    def _time(self, placements: np.ndarray, limit_secs: float) -> float:
        """Measures the seconds to simulate one placement."""
        start_secs = time.monotonic()
        self._simulator.simulate(placements, limit_secs=limit_secs)
        return (time.monotonic() - start_secs) / max(1, len(placements))
