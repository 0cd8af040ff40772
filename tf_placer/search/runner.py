"""Runners measure what a search submits: one placement at a time, or several at once."""

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

#: The capacity of a runner that takes as many placements as there are.
UNLIMITED = sys.maxsize


class CompletedTrial(NamedTuple):
    """A placement whose measurement has ended.

    Attributes:
        key: what the placement was submitted under.
        measurement: what running it gave.
        worker: who measured it; None where there are no workers.
    """

    key: Any
    measurement: Measurement
    worker: str | None = None


class Runner(Protocol):
    """Measures placements, possibly several at once."""

    @property
    def capacity(self) -> int:
        """How many placements can be measured at once now; at least one."""
        ...

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Takes a placement to measure.

        Args:
            key: something to tell it by from all others under way.
            placement: int32 [num_groups], a device index per group.
        """
        ...

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Waits until at least one of the placements under way has ended.

        Args:
            timeout_secs: after which nobody wants to wait any more; what is measured in this
                process is waited for to its end.

        Returns:
            Those that have ended, each once. One that cannot run is a failure, never an exception.
        """
        ...


class SequentialRunner:
    """Measures placements by an environment, one after the other; see `Runner`."""

    capacity = 1

    def __init__(self, environment: Environment) -> None:
        """Measures nothing yet.

        Args:
            environment: what measures.
        """
        self._environment = environment
        self._submitted: collections.deque[tuple[Any, np.ndarray]] = collections.deque()

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Takes a placement, which `wait` measures; see `Runner.submit`."""
        self._submitted.append((key, placement))

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Measures the next placement; see `Runner.wait`."""
        key, placement = self._submitted.popleft()
        [measurement] = self._environment.measure(placement[None])
        return [CompletedTrial(key, measurement)]


class SimulatedRunner:
    """Simulates all that was submitted at once, on all cores; see `Runner`."""

    capacity = UNLIMITED

    def __init__(
        self,
        environment: SimulatedEnvironment,
        simulated: Callable[[np.ndarray, SimulatedBatch], None] | None = None,
    ) -> None:
        """Simulates nothing yet.

        Args:
            environment: what simulates.
            simulated: called with placements, int32 [num_placements, num_groups], and what
                simulating them gave, which the simulator may use again.
        """
        self._environment = environment
        self._simulated = simulated
        self._submitted: dict[Any, np.ndarray] = {}

    def submit(self, key: Any, placement: np.ndarray) -> None:
        """Takes a placement, which `wait` simulates; see `Runner.submit`."""
        self._submitted[key] = placement

    def wait(self, timeout_secs: float = math.inf) -> list[CompletedTrial]:
        """Simulates all that was submitted; see `Runner.wait`."""
        submitted, self._submitted = self._submitted, {}
        placements = np.array(list(submitted.values()))
        batch = self._environment.simulator.simulate(placements)
        if self._simulated is not None:
            self._simulated(placements, batch)
        measurements = self._environment.measurements(placements, batch)
        return list(map(CompletedTrial, submitted, measurements))
