"""Tries every placement of a small problem that may be the best."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tf_placer.placers.auto.all_placements import AllPlacements
from tf_placer.placers.auto.found import Found
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator

__all__ = ["ExhaustiveSearch"]

# How many placements of the first groups tell how many placements are promising.
_LOOKS = 64
# So many samples are timed, of at most so many placements; other work disturbs some.
_TIMINGS, _TIMED = 4, 512
# What leaving out a placement that is not promising takes, in seconds.
_LOOK_SECS = 2e-7


class ExhaustiveSearch:
    """Simulates the promising placements, many at a time."""

    def __init__(
        self, problem: PlacementProblem, simulator: Simulator, seed: int | np.random.SeedSequence
    ) -> None:
        """Prepares the search.

        Args:
            problem: what is placed; with at most some hundred millions of placements.
            simulator: of the problem.
            seed: of the estimate of how long it takes.
        """
        self._placements = AllPlacements(problem)
        self._simulator = simulator
        self._random = np.random.default_rng(seed)

    def expected(self, limit_secs: float) -> tuple[float, float]:
        """Estimates what it takes to find what is faster than a limit.

        Args:
            limit_secs: the step that is to be shorter.

        Returns:
            About how many placements have to be simulated, and how long the search takes, in
            seconds. It may well take less, for with every faster step fewer are promising.
        """
        rows, count = self._placements.sample(limit_secs, _LOOKS, self._random)
        parts = np.array_split(rows, _TIMINGS)
        each_secs = min(self._time(part[:_TIMED], limit_secs) for part in parts)
        return count, each_secs * count + _LOOK_SECS * self._placements.size

    def run(self, limit_secs: float) -> Iterator[tuple[Found | None, int]]:
        """Simulates all that may be faster than a limit.

        Args:
            limit_secs: the step that is to be shorter.

        Yields:
            Again and again, the fastest placement that fits, if it is new, else None; and how many
            were simulated for that.
        """
        best_secs = limit_secs

        def limit() -> float:
            return best_secs

        for placements in self._placements.promising(limit):
            batch = self._simulator.simulate(placements, limit_secs=best_secs)
            step_secs = np.where(batch.feasible, batch.step_secs, np.inf)
            at = int(np.argmin(step_secs))
            found = None
            if step_secs[at] < best_secs:
                best_secs = float(step_secs[at])
                found = Found(placements[at], best_secs, batch.peak_bytes[at], 0)
            yield found, len(placements)

    def _time(self, placements: np.ndarray, limit_secs: float) -> float:
        """Measures what simulating one of some placements takes, in seconds."""
        start_secs = time.monotonic()
        self._simulator.simulate(placements, limit_secs=limit_secs)
        return (time.monotonic() - start_secs) / max(1, len(placements))
