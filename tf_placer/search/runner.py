"""Runners, which measure the placements of a search, one at a time or several at once."""

from __future__ import annotations

import collections
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from tf_placer.environments.environment import Environment, Measurement
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.simulation.simulator import SimulatedBatch

__all__ = ["UNLIMITED", "CompletedTrial", "Runner", "SequentialRunner", "SimulatedRunner"]

#: The capacity of a runner that takes any number of placements.
UNLIMITED = sys.maxsize


class CompletedTrial(NamedTuple):
    """A placement that has been measured.

    Attributes:
        key: the key that the placement was submitted under.
        measurement: the measurement.
        worker: the name of the worker that measured the placement; None without workers.
    """

    key: Any
    measurement: Measurement
    worker: str | None = None


class Runner(Protocol):
    """Measures placements, possibly several at once."""

    @property
    def capacity(self) -> int:
        """The number of placements that can be measured at once now; at least one."""
        ...

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Submits a placement to measure.

        Args:
            key: a value that identifies the placement among all that are under way.
            placement: int32 [num_groups], a device index per group.
        """
        ...

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Waits until at least one submitted placement has been measured.

        Args:
            timeout_secs: the longest wait. A measurement in this process always runs to its end.

        Returns:
            The completed trials, each once. A placement that cannot run is a failure, never an
            exception.
        """
        ...


class SequentialRunner:
    """A runner that measures placements in an environment, one after the other."""

    capacity = 1

    def __init__(self, environment: Environment) -> None:
        """Makes the runner, which measures nothing yet.

        Args:
            environment: measures placements.
        """
        self._environment = environment
        self._submitted: collections.deque[tuple[Any, np.ndarray]] = collections.deque()

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Queues a placement, which `wait` measures; see `Runner.submit`."""
        self._submitted.append((key, placement))

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Measures the next placement; see `Runner.wait`."""
        key, placement = self._submitted.popleft()
        [measurement] = self._environment.measure(placement[None])
        return [CompletedTrial(key, measurement)]


class SimulatedRunner:
    """A runner that simulates all submitted placements at once, on all cores."""

    capacity = UNLIMITED

    def __init__(
        self,
        environment: SimulatedEnvironment,
        simulated: Callable[[np.ndarray, SimulatedBatch], None] | None = None,
    ) -> None:
        """Makes the runner, which simulates nothing yet.

        Args:
            environment: simulates placements.
            simulated: called with placements, int32 [num_placements, num_groups], and their
                simulated batch, whose arrays the simulator may reuse afterwards.
        """
        self._environment = environment
        self._simulated = simulated
        self._submitted: dict[Any, np.ndarray] = {}

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Queues a placement, which `wait` simulates; see `Runner.submit`."""
        self._submitted[key] = placement

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Simulates all queued placements; see `Runner.wait`."""
        submitted, self._submitted = self._submitted, {}
        placements = np.array(list(submitted.values()))
        batch = self._environment.simulator.simulate(placements)
        if self._simulated is not None:
            self._simulated(placements, batch)
        measurements = self._environment.measurements(placements, batch)
        return list(map(CompletedTrial, submitted, measurements))
