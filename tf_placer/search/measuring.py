"""What a search has its placements measured by: one at a time, or several at once."""

from __future__ import annotations

import collections
import dataclasses
import math
from typing import Protocol

import numpy as np

from tf_placer.environments.environment import Environment, Measurement

__all__ = ["Finished", "InTurn", "Measuring"]


@dataclasses.dataclass(frozen=True)
class Finished:
    """A placement whose measurement has ended.

    Attributes:
        key: the number that the placement was started under.
        measurement: what running it gave.
        worker: who measured it; None where there are no workers.
    """

    key: int
    measurement: Measurement
    worker: str | None = None


class Measuring(Protocol):
    """Measures placements, possibly several at once."""

    @property
    def capacity(self) -> int:
        """How many placements can be measured at once now; at least one."""
        ...

    def start(self, key: int, placement: np.ndarray) -> None:
        """Begins to measure a placement.

        Args:
            key: a number for it, which no other placement under way has.
            placement: int32 [num_groups], a device index per group.
        """
        ...

    def finished(self, timeout_secs: float = math.inf) -> list[Finished]:
        """Waits until at least one of the placements under way has ended.

        Args:
            timeout_secs: after which nobody wants to wait any more; what is measured in this
                process is waited for to its end.

        Returns:
            Those that have ended, each once. One that cannot run is a failure, never an exception.
        """
        ...


class InTurn:
    """Measures placements by an environment, one after the other."""

    capacity = 1

    def __init__(self, environment: Environment) -> None:
        """Measures nothing yet.

        Args:
            environment: what measures.
        """
        self._environment = environment
        self._waiting: collections.deque[tuple[int, np.ndarray]] = collections.deque()

    def start(self, key: int, placement: np.ndarray) -> None:
        """Takes a placement, which `finished` measures; see `Measuring.start`."""
        self._waiting.append((key, placement))

    def finished(self, timeout_secs: float = math.inf) -> list[Finished]:
        """Measures the next placement; see `Measuring.finished`."""
        key, placement = self._waiting.popleft()
        [measurement] = self._environment.measure(placement[None])
        return [Finished(key, measurement)]
