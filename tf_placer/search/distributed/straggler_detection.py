"""Detection of workers that are slower than others on machines that are alike."""

from __future__ import annotations

import collections
import statistics
from collections.abc import Mapping

__all__ = ["RelativeStepTime", "find_straggler"]

# How many of the latest measurements say how slow a machine is, and how many are enough to judge.
_LATEST, _ENOUGH = 5, 3
# How many times as slow as the others a machine may be: shared machines drift by less for long.
_LIMIT = 1.5


class RelativeStepTime:
    """The step time of the graph as it came on a machine, relative to that in trial 0.

    Attributes:
        first: when the worker was new; None before.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self._latest: collections.deque[float] = collections.deque(maxlen=_LATEST)

    def add(self, ratio: float) -> None:
        """Takes in one more measurement of the graph as it came."""
        if self.first is None:
            self.first = ratio
        self._latest.append(ratio)

    def forget(self) -> None:
        """Drops what was measured lately, so that only what follows counts."""
        self._latest.clear()

    @property
    def now(self) -> float | None:
        """The median of the latest measurements; None without any."""
        return statistics.median(self._latest) if self._latest else None

    @property
    def least(self) -> float:
        """The least of the latest measurements."""
        return min(self._latest)

    @property
    def most(self) -> float:
        """The greatest of the latest measurements."""
        return max(self._latest)

    @property
    def is_known(self) -> bool:
        """Whether enough was measured to judge the machine by."""
        return len(self._latest) >= _ENOUGH


def find_straggler(workers: Mapping[str, RelativeStepTime]) -> tuple[str, str] | None:
    """Finds the worker that is slower than the others, for a reason that nobody knows.

    The machines are alike, so what slows down one and not the others is no property of theirs. All
    of its latest measurements must be slower than all of most others, so that neither a slow phase
    of a machine nor one of all machines counts. With two workers, the other one is all that there
    is to compare with.

    Args:
        workers: how slow the machine of each is, by name.

    Returns:
        The name of the worker, and what is wrong with it; None where all are alike.
    """
    known = {name: each for name, each in workers.items() if each.is_known}
    found: tuple[float, str] | None = None
    for name, each in known.items():
        others = [other.most for another, other in known.items() if another != name]
        if others:
            ratio = each.least / statistics.median(others)
            if ratio > _LIMIT and (found is None or ratio > found[0]):
                found = ratio, name
    if found is None:
        return None
    ratio, name = found
    first, now = workers[name].first, workers[name].now
    assert first is not None and now is not None
    if now > _LIMIT * first:
        how = f"has become {now / first:.1f}x as slow as it was"
    else:
        how = "has been so from the start"
    return name, f"runs the graph as it came {ratio:.1f}x as slowly as the others, and {how}"
