"""An enumeration of the placements of a small problem that may be optimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs, legal_devices, running_bytes

__all__ = ["AllPlacements"]

_MAX_TAILS = 2**13
_BATCH = 2**13
# Sums of seconds depend on the order of their terms.
_ROUNDING = 1e-9


class AllPlacements:
    """The legal placements of a problem that has at most some hundred millions.

    A placement is promising if no device computes for longer than a limit, and no device exceeds
    its memory while one of its groups runs. Any other placement exceeds the memory or the limit.

    A placement consists of a head, the devices of the first groups, and a tail, the devices of
    the last groups. All tails are checked at once for each head.

    Attributes:
        size: the number of placements.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        """Prepares the enumeration.

        Args:
            problem: the placement problem.
        """
        legal = legal_devices(problem)
        slots = np.array([device.slots for device in problem.devices])
        secs = np.where(legal, device_secs(problem), 0.0) / slots
        held = np.bincount(problem.groups, problem.resident_bytes, minlength=problem.num_groups)
        running = running_bytes(problem)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        # The number of placements of each group and all groups behind it.
        products = np.cumprod(legal.sum(axis=1)[::-1].astype(np.float64))[::-1]
        first = int(np.argmax(products <= max(_MAX_TAILS, products[-1])))
        self._heads = _Placements(legal[:first], secs[:first], held[:first], running[:first])
        tails = _Placements(legal[first:], secs[first:], held[first:], running[first:])
        self._tails, *self._tail_costs = tails.decode(np.arange(tails.size))
        self.size = self._heads.size * tails.size

    def generate_promising(self, limit_secs: Callable[[], float]) -> Iterator[np.ndarray]:
        """Yields the promising placements, each once.

        Args:
            limit_secs: returns the limit; called for each head, because the limit may fall.

        Yields:
            int32 [num_placements, num_groups], at least one placement.
        """
        waiting: list[np.ndarray] = []
        for start in range(0, self._heads.size, _BATCH):
            numbers = np.arange(start, min(start + _BATCH, self._heads.size))
            for head in zip(*self._heads.decode(numbers), strict=True):
                waiting.append(self._complete(*head, limit_secs()))
                if sum(map(len, waiting)) >= _BATCH:
                    yield np.concatenate(waiting)
                    waiting = []
        if sum(map(len, waiting)):
            yield np.concatenate(waiting)

    def sample(
        self, limit_secs: float, num_heads: int, random: np.random.Generator
    ) -> tuple[np.ndarray, float]:
        """Samples the promising placements, and estimates their number.

        Args:
            limit_secs: the limit.
            num_heads: the number of heads to sample.
            random: draws the heads.

        Returns:
            int32 [num_placements, num_groups], and the estimate.
        """
        numbers = random.integers(self._heads.size, size=num_heads)
        heads = zip(*self._heads.decode(numbers), strict=True)
        found = np.concatenate([self._complete(*head, limit_secs) for head in heads])
        return found, len(found) / num_heads * self._heads.size

    def _complete(
        self,
        head: np.ndarray,
        head_secs: np.ndarray,
        head_held: np.ndarray,
        head_running: np.ndarray,
        limit_secs: float,
    ) -> np.ndarray:
        """Lists the promising placements with a head."""
        secs, held, running = self._tail_costs
        kept = (secs + head_secs <= limit_secs * (1.0 + _ROUNDING)).all(axis=1)
        peak_bytes = held + head_held + np.maximum(running, head_running)
        kept &= (peak_bytes <= self._capacities).all(axis=1)
        tails = self._tails[kept]
        return np.concatenate([np.tile(head, (len(tails), 1)), tails], axis=1)


class _Placements:
    """All placements of some groups, numbered in a mixed radix."""

    def __init__(
        self, legal: np.ndarray, secs: np.ndarray, held: np.ndarray, running: np.ndarray
    ) -> None:
        self._devices = [np.flatnonzero(row).astype(np.int32) for row in legal]
        self._secs, self._held, self._running = secs, held, running
        self.size = int(np.prod([len(each) for each in self._devices], dtype=np.int64))

    def decode(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Builds the placements with these numbers.

        Returns:
            The placements, and for each device the seconds that it computes, the bytes that it
            holds throughout the step, and the further bytes that it holds at least once.
        """
        placements = np.zeros([len(numbers), len(self._devices)], np.int32)
        secs = np.zeros([len(numbers), self._secs.shape[1]])
        held, running = np.zeros(secs.shape), np.zeros(secs.shape)
        every = np.arange(len(numbers))
        for group, devices in enumerate(self._devices):
            numbers, digits = np.divmod(numbers, len(devices))
            placements[:, group] = on = devices[digits]
            secs[every, on] += self._secs[group, on]
            held[every, on] += self._held[group]
            running[every, on] = np.maximum(running[every, on], self._running[group])
        return placements, secs, held, running
