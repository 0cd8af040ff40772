"""The simulated starts of a search, and repacked versions of the best of them that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.packing import Packer
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["SimulatedStarts"]

_MAX_SHARE_UNTIL_FITTING = 0.5
_MAX_REPACKS_PER_START = 20
_MAX_PACKINGS_FROM_SCRATCH = 100
_BATCH = 16


class SimulatedStarts:
    """Simulates starts as long as there is time for them.

    Attributes:
        found: the candidates simulated so far, and their names, best first.
    """

    def __init__(
        self,
        simulate: Callable[[np.ndarray], list[Candidate]],
        progress: Callable[[], float],
        left: Callable[[], float],
        max_share: float,
        report: Callable[[], None],
    ) -> None:
        """Prepares to simulate.

        Args:
            simulate: simulates placements, int32 [count, num_groups].
            progress: returns the used share of the budget of the search, from 0 to 1.
            left: returns the number of placements that may still be simulated.
            max_share: the share of the budget for the starts.
            report: called after starts were simulated.
        """
        self._simulate = simulate
        self._progress = progress
        self._count_left = left
        self._max_share = max_share
        self._report = report
        self._known: set[bytes] = set()
        self.found: list[tuple[Candidate, str]] = []

    def add(self, starts: Iterable[tuple[str, np.ndarray]]) -> None:
        """Simulates all starts that there is time for; the first one in any case.

        Args:
            starts: names and placements, int32 [num_groups]; each may take seconds to generate.
        """
        batch: list[tuple[str, np.ndarray]] = []
        for name, placement in starts:
            if placement.tobytes() not in self._known:
                self._known.add(placement.tobytes())
                batch.append((name, placement))
            if len(batch) >= min(_BATCH if self.found else 1, self._count_left()):
                self._add_batch(batch)
                batch = []
            if self._progress() >= self._max_share:
                break
        self._add_batch(batch)

    def make_fit(
        self, problem: PlacementProblem, legal: np.ndarray, *, count: int, seed: int
    ) -> None:
        """Repacks the starts that come closest to fitting, and then packs from scratch.

        Args:
            problem: the placement problem.
            legal: bool [num_groups, num_devices], true where a group may go.
            count: the number of starts to repack.
            seed: seeds the packers.
        """
        packers = [Packer(problem, legal, seed, only_resident=is_sure) for is_sure in (False, True)]
        closest = self.found[:count]
        tries = [(packer, found, name) for found, name in closest for packer in packers]
        for number in range(len(tries) + _MAX_PACKINGS_FROM_SCRATCH):
            fits = any(not found.excess_bytes for found, _ in self.found)
            if self._progress() >= (self._max_share if fits else _MAX_SHARE_UNTIL_FITTING):
                break
            if number < len(tries):
                packer, found, name = tries[number]
            elif fits:
                break
            else:
                packer, name = packers[number % len(packers)], "packing"
                found = self._add_one(name, packer.pack(closest[0][0].placement))
            for _ in range(_MAX_REPACKS_PER_START):
                if not found.excess_bytes or self._count_left() < 1:
                    break
                placement = packer.repack(found.placement, found.peak_bytes)
                if (placement == found.placement).all():
                    break
                found = self._add_one(name, placement)

    def best(self) -> tuple[tuple[str, Candidate], ...]:
        """Lists the best start of each name, best first."""
        best: dict[str, Candidate] = {}
        for found, name in sorted(self.found, key=lambda pair: pair[0].rank):
            best.setdefault(name, found)
        return tuple(best.items())

    def _add_one(self, name: str, placement: np.ndarray) -> Candidate:
        [found] = self._simulate(placement[None])
        self._add_found([(found, name)])
        return found

    def _add_batch(self, batch: Sequence[tuple[str, np.ndarray]]) -> None:
        if batch:
            found = self._simulate(np.stack([placement for _, placement in batch]))
            self._add_found([(each, name) for each, (name, _) in zip(found, batch, strict=True)])

    def _add_found(self, found: Sequence[tuple[Candidate, str]]) -> None:
        self.found += found
        self.found.sort(key=lambda pair: pair[0].rank)
        self._report()
