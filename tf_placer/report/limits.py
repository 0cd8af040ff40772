"""Limits of a simulated step: compute, links, the critical path and memory."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = ["Limit", "Limits", "find_limits"]


@dataclasses.dataclass(frozen=True)
class Limit:
    """A resource that a step may be short of.

    Attributes:
        kind: "compute", "link", "critical path", "transfers on it" or "memory".
        where: the device or the link; empty for the critical path.
        share: the share of the step in which it is in use; for memory, the share in use.
    """

    kind: str
    where: str
    share: float


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a step, and its lower bound.

    Attributes:
        step_secs: the simulated step time.
        critical_path_secs: the lower bound by the longest chain of operations.
        work_secs: the lower bound by the work of the devices.
        limits: each device's compute; the busiest link; operations, and transfers, of the critical
            path; each device's memory.
        bound: the name of the largest lower bound; see `LowerBounds.by_part`.
        bound_secs: the largest lower bound.
    """

    step_secs: float
    critical_path_secs: float
    work_secs: float
    limits: tuple[Limit, ...]
    # Explanations of older versions lack these fields.
    bound: str = ""
    bound_secs: float = 0.0

    @property
    def lower_bound_secs(self) -> float:
        """A time below which no placement can be."""
        return max(self.critical_path_secs, self.work_secs, self.bound_secs)


def find_limits(problem: PlacementProblem, placement: np.ndarray) -> Limits:
    """Simulates a step and finds its limits.

    Args:
        problem: the problem.
        placement: int32 [num_groups], a legal placement.
    """
    report = step_report(Simulator(problem, threads=1).trace(placement))
    bounds = lower_bounds(problem)
    step_secs = max(report.step_secs, 1e-300)
    compute = [
        Limit("compute", device.name, device.busy_secs / step_secs) for device in report.devices
    ]
    links = [
        Limit("link", where, secs / step_secs) for where, secs in _sum_by_channel(report).items()
    ]
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


def _sum_by_channel(report: StepReport) -> dict[str, float]:
    """Adds up the busy seconds of the links of each channel."""
    secs: dict[str, float] = {}
    for link in report.links:
        name = link.channel or f"{link.source} -> {link.destination}"
        secs[name] = secs.get(name, 0.0) + link.busy_secs
    return secs
