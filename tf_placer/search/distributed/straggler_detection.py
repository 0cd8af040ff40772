"""Detection of workers that are slower than the others on machines of the same kind."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from collections.abc import Mapping

__all__ = ["RelativeStepTime", "find_straggler"]


@dataclasses.dataclass(frozen=True)
class _StragglerRule:
    """The rule that decides whether a machine is a straggler.

    Shared machines differ by less than `max_ratio` for any longer time.
    """

    num_latest: int = 5
    min_measurements: int = 3
    max_ratio: float = 1.5


_RULE = _StragglerRule()


class RelativeStepTime:
    """The step time of the original graph on a machine, relative to that in trial 0.

    Attributes:
        first: the first measurement; None before it.
    """

    def __init__(self) -> None:
        self.first: float | None = None
        self._latest: collections.deque[float] = collections.deque(maxlen=_RULE.num_latest)

    def add(self, ratio: float) -> None:
        """Adds a measurement of the original graph."""
        if self.first is None:
            self.first = ratio
        self._latest.append(ratio)

    def forget(self) -> None:
        """Drops the latest measurements, so that only later ones count."""
        self._latest.clear()

    @property
    def now(self) -> float | None:
        """The median of the latest measurements; None if there are none."""
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
        """True if there are enough measurements to judge the machine."""
        return len(self._latest) >= _RULE.min_measurements


def find_straggler(workers: Mapping[str, RelativeStepTime]) -> tuple[str, str] | None:
    """Finds a worker that is slower than the others.

    The machines are of one kind, so a slow one has some unknown problem. All of its latest
    measurements must be slower than all those of most other workers, so that a slow phase of one or
    of all machines does not count. With two workers, each is compared with the other one.

    Args:
        workers: the relative step time of each worker, by name.

    Returns:
        The name of the slowest straggler, and a description of its problem; None if there is none.
    """
    known = {name: each for name, each in workers.items() if each.is_known}
    found: tuple[float, str] | None = None
    for name, each in known.items():
        others = [other.most for another, other in known.items() if another != name]
        if others:
            ratio = each.least / statistics.median(others)
            if ratio > _RULE.max_ratio and (found is None or ratio > found[0]):
                found = ratio, name
    if found is None:
        return None
    ratio, name = found
    first, now = workers[name].first, workers[name].now
    assert first is not None and now is not None
    if now > _RULE.max_ratio * first:
        since = f"has become {now / first:.1f}x as slow as it was"
    else:
        since = "has been so from the start"
    return name, f"runs the original graph {ratio:.1f}x as slowly as the others, and {since}"
