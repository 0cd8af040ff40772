"""Measurements of placements by simulation."""

from __future__ import annotations

import numpy as np

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import SimulatedBatch, Simulator

__all__ = ["SimulatedEnvironment"]


class SimulatedEnvironment:
    """The `Environment` of a problem: simulates one step of each placement, on all cores.

    A placement that exceeds the memory of a device fails as OUT_OF_MEMORY, a placement with an
    operation on a forbidden device as INVALID_PLACEMENT.

    Attributes:
        problem: the placement problem.
        simulator: the simulator of the problem.
    """

    def __init__(
        self, problem: PlacementProblem, *, memory: bool = True, threads: int | None = None
    ) -> None:
        """Makes the simulator.

        Args:
            problem: the placement problem.
            memory: whether to track memory; without it no placement is out of memory.
            threads: placements to simulate at a time; by default one per core that this process
                may use.
        """
        self.problem = problem
        self.simulator = Simulator(problem, memory=memory, threads=threads)
        self._memory = memory
        self._memory_bytes = np.array([d.memory_bytes for d in problem.devices], np.int64)

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Simulates placements; see `Environment.measure`.

        Raises:
            ValueError: the array has another shape, or names a device that does not exist.
        """
        return self.measurements(placements, self.simulator.simulate(placements))

    def measurements(self, placements: np.ndarray, batch: SimulatedBatch) -> list[Measurement]:
        """Turns simulated steps into measurements.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.
            batch: the simulated steps.

        Returns:
            One measurement per placement, with one step time or a failure.
        """
        results = zip(
            placements,
            batch.step_secs.tolist(),
            map(tuple, batch.peak_bytes.tolist()),
            batch.feasible.tolist(),
            strict=True,
        )
        return [
            Measurement((secs,), None, 0.0, peaks if self._memory else None)
            if feasible
            else self._build_failure(placement, secs, peaks)
            for placement, secs, peaks, feasible in results
        ]

    def _build_failure(
        self, placement: np.ndarray, secs: float, peaks: tuple[int, ...]
    ) -> Measurement:
        if secs == np.inf:
            failure = Failure(FailureKind.INVALID_PLACEMENT, self._explain_invalid(placement))
            return Measurement(failure=failure)
        excess_bytes = np.maximum(np.array(peaks) - self._memory_bytes, 0)
        device = int(np.argmax(excess_bytes))
        message = (
            f"device {self.problem.devices[device].name!r} would hold {peaks[device]:,} bytes at "
            f"once and has room for {self._memory_bytes[device]:,}"
        )
        failure = Failure(FailureKind.OUT_OF_MEMORY, message, int(excess_bytes.sum()))
        return Measurement(failure=failure, peak_bytes=peaks)

    def _explain_invalid(self, placement: np.ndarray) -> str:
        """Explains which operation is on a forbidden device: the first one."""
        devices = np.asarray(placement)[self.problem.groups]
        each = np.arange(self.problem.num_operations)
        operation = int(np.argmax(np.isinf(self.problem.compute_secs[each, devices])))
        return (
            f"operation {self.problem.operation_names[operation]!r} may not go on device "
            f"{self.problem.devices[devices[operation]].name!r}"
        )
