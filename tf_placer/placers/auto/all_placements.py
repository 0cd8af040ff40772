"""All placements of a small problem, but for those that cannot be the best."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs, legal_devices, running_bytes

__all__ = ["AllPlacements"]

# The last groups, as many as have at most so many placements, are looked at all at once.
_MOST_AT_ONCE = 2**13
_BATCH = 2**13
# Sums of seconds depend on the order.
_ROUNDING = 1e-9


class AllPlacements:
    """The legal placements of a problem of at most some hundred millions.

    A placement is promising if no device computes for longer than a limit, and none has to hold
    more than it can while one of its groups runs. No other placement fits and takes no longer than
    the limit.

    Attributes:
        size: how many placements there are.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        """Prepares the look at all placements.

        Args:
            problem: what is placed.
        """
        legal = legal_devices(problem)
        slots = np.array([device.slots for device in problem.devices])
        secs = np.where(legal, device_secs(problem), 0.0) / slots
        held = np.bincount(problem.groups, problem.resident_bytes, minlength=problem.num_groups)
        running = running_bytes(problem)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        # The number of placements of all groups from each on.
        products = np.cumprod(legal.sum(axis=1)[::-1].astype(np.float64))[::-1]
        first = int(np.argmax(products <= max(_MOST_AT_ONCE, products[-1])))
        self._heads = _Placements(legal[:first], secs[:first], held[:first], running[:first])
        tails = _Placements(legal[first:], secs[first:], held[first:], running[first:])
        self._tails, *self._of_tails = tails.some(np.arange(tails.size))
        self.size = self._heads.size * tails.size

    def promising(self, limit_secs: Callable[[], float]) -> Iterator[np.ndarray]:
        """Yields the promising placements, each once.

        Args:
            limit_secs: gives the limit, and is asked again and again, for it may fall.

        Yields:
            int32 [num_placements, num_groups], at least one placement.
        """
        waiting: list[np.ndarray] = []
        for start in range(0, self._heads.size, _BATCH):
            numbers = np.arange(start, min(start + _BATCH, self._heads.size))
            for head in zip(*self._heads.some(numbers), strict=True):
                waiting.append(self._promising(*head, limit_secs()))
                if sum(map(len, waiting)) >= _BATCH:
                    yield np.concatenate(waiting)
                    waiting = []
        if sum(map(len, waiting)):
            yield np.concatenate(waiting)

    def sample(
        self, limit_secs: float, num_looks: int, random: np.random.Generator
    ) -> tuple[np.ndarray, float]:
        """Samples the promising placements, and estimates how many there are.

        Args:
            limit_secs: the limit.
            num_looks: how many placements of the first groups to look at.
            random: chooses them.

        Returns:
            int32 [num_placements, num_groups], and the estimate.
        """
        numbers = random.integers(self._heads.size, size=num_looks)
        heads = zip(*self._heads.some(numbers), strict=True)
        found = np.concatenate([self._promising(*head, limit_secs) for head in heads])
        return found, len(found) / num_looks * self._heads.size

    def _promising(
        self,
        head: np.ndarray,
        head_secs: np.ndarray,
        head_held: np.ndarray,
        head_running: np.ndarray,
        limit_secs: float,
    ) -> np.ndarray:
        secs, held, running = self._of_tails
        kept = (secs + head_secs <= limit_secs * (1.0 + _ROUNDING)).all(axis=1)
        peak_bytes = held + head_held + np.maximum(running, head_running)
        kept &= (peak_bytes <= self._capacities).all(axis=1)
        tails = self._tails[kept]
        return np.concatenate([np.tile(head, (len(tails), 1)), tails], axis=1)


class _Placements:
    """All placements of some groups, by number."""

    def __init__(
        self, legal: np.ndarray, secs: np.ndarray, held: np.ndarray, running: np.ndarray
    ) -> None:
        self._devices = [np.flatnonzero(row).astype(np.int32) for row in legal]
        self._secs, self._held, self._running = secs, held, running
        self.size = int(np.prod([len(each) for each in self._devices], dtype=np.int64))

    def some(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Makes placements.

        Returns:
            The placements, what each device computes, in seconds, what it holds all the time, and
            what it holds at least once beside that, in bytes.
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
