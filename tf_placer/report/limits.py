"""What keeps a simulated step from being shorter."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = ["Limit", "Limits", "limits_of"]


@dataclasses.dataclass(frozen=True)
class Limit:
    """Something that a step can be short of.

    Attributes:
        kind: "compute", "link", "critical path", "transfers on it" or "memory".
        where: the device or the link; empty for the critical path.
        share: of the step that it is in use; of memory, how much of it.
    """

    kind: str
    where: str
    share: float


@dataclasses.dataclass(frozen=True)
class Limits:
    """Where the time of a step goes.

    Attributes:
        step_secs: the simulated step.
        critical_path_secs: the lower bound of operations that wait for each other.
        work_secs: the lower bound of what the devices have to do.
        limits: each device's compute; the busiest link; operations, and transfers, of the critical
            path; each device's memory.
        bound: the part that the lower bound is of; see `LowerBounds.by_part`.
        bound_secs: that part.
    """

    step_secs: float
    critical_path_secs: float
    work_secs: float
    limits: tuple[Limit, ...]
    # Explanations of older versions do not have them.
    bound: str = ""
    bound_secs: float = 0.0

    @property
    def lower_bound_secs(self) -> float:
        """No placement takes less."""
        return max(self.critical_path_secs, self.work_secs, self.bound_secs)


def limits_of(problem: PlacementProblem, placement: np.ndarray) -> Limits:
    """Simulates a step and says what bounds it.

    Args:
        problem: what is placed.
        placement: int32 [num_groups], a legal placement.
    """
    report = step_report(Simulator(problem, threads=1).trace(placement))
    bounds = lower_bounds(problem)
    step_secs = max(report.step_secs, 1e-300)
    compute = [
        Limit("compute", device.name, device.busy_secs / step_secs) for device in report.devices
    ]
    links = [Limit("link", where, secs / step_secs) for where, secs in _channels(report).items()]
    busiest_link = max(links, key=lambda limit: limit.share, default=None)
    path = Limit("critical path", "", report.path_compute_secs / step_secs)
    transfers = Limit("transfers on it", "", report.path_transfer_secs / step_secs)
    memory = [
        Limit("memory", device.name, device.peak_bytes / max(device.memory_bytes, 1))
        for device in report.devices
    ]
    return Limits(
        step_secs=report.step_secs,
        critical_path_secs=bounds.critical_path_secs,
        work_secs=bounds.work_secs,
        limits=(
            *compute,
            *([busiest_link] if busiest_link is not None else []),
            path,
            transfers,
            *memory,
        ),
        bound=bounds.binding,
        bound_secs=bounds.step_secs,
    )


def _channels(report: StepReport) -> dict[str, float]:
    """Seconds that each channel carries something; links that share one are one."""
    secs: dict[str, float] = {}
    for link in report.links:
        name = link.channel or f"{link.source} -> {link.destination}"
        secs[name] = secs.get(name, 0.0) + link.busy_secs
    return secs
