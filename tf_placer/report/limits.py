"""Limits of a simulated step: compute, links, the critical path and memory."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.accelerators import is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = [
    "FOR_WANT_OF_MEMORY",
    "LEAST_DISPLACED_SHARE",
    "LEAST_MEMORY_GAIN",
    "Limit",
    "Limits",
    "find_limits",
    "move_to_gpus",
]

#: The kind of the limit that is work on a CPU for which GPUs have no room.
FOR_WANT_OF_MEMORY = "for want of memory"
#: From this share of the step on, such work is the cause that sentences name.
LEAST_DISPLACED_SHARE = 0.05
#: Memory is short only if more of it speeds up the step by more than this factor.
LEAST_MEMORY_GAIN = 1.02


@dataclasses.dataclass(frozen=True)
class Limit:
    """A resource that a step may be short of.

    Attributes:
        kind: "compute", "link", "critical path", "transfers on it", "memory", or
            "for want of memory": the work on a CPU that a GPU without enough memory would do
            faster, if that would shorten the step by more than 2 %.
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
            path; each device's memory; and work on CPUs for want of memory.
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

    @property
    def displaced_share(self) -> float:
        """The share of the step in which a CPU works for want of memory on GPUs."""
        shares = [each.share for each in self.limits if each.kind == FOR_WANT_OF_MEMORY]
        return max(shares, default=0.0)


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
            *_find_displaced_work(problem, placement, report),
        ),
        bound=bounds.binding,
        bound_secs=bounds.step_secs,
    )


def move_to_gpus(problem: PlacementProblem, placement: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Moves the groups on CPUs that are faster on a GPU there, without regard to memory.

    Args:
        problem: the problem.
        placement: int32 [num_groups], a legal placement.

    Returns:
        int32 [num_gpus, num_groups], a placement for each GPU to which they all move, as far as
        they may; and bool [num_groups], the groups that move. Neither has a row without GPUs.
    """
    gpus = [index for index, device in enumerate(problem.devices) if is_gpu(device)]
    secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(secs, problem.groups, problem.compute_secs)
    own_secs = secs[np.arange(len(placement)), placement]
    is_faster = (secs[:, gpus] < own_secs[:, None]) & ~np.isin(placement, gpus)[:, None]
    moves = is_faster.any(axis=1)
    fastest = secs[:, gpus].argmin(axis=1) if gpus else np.zeros(len(placement), np.int64)
    moved = [
        np.where(
            moves, np.where(is_faster[:, number], gpu, np.array(gpus)[fastest]), placement
        ).astype(np.int32)
        for number, gpu in enumerate(gpus)
    ]
    return np.array(moved, np.int32).reshape(len(gpus), len(placement)), moves


def _find_displaced_work(
    problem: PlacementProblem, placement: np.ndarray, report: StepReport
) -> list[Limit]:
    """Finds the work on CPUs without which the step would be shorter if GPUs had room for it."""
    moved, moves = move_to_gpus(problem, placement)
    if not moves.any():
        return []
    simulated = Simulator(problem, threads=1).simulate(moved)
    # The CPU may compute at the same time as the GPUs, which is faster than waiting for them.
    is_shorter = report.step_secs > LEAST_MEMORY_GAIN * float(simulated.step_secs.min())
    if simulated.feasible.any() or not is_shorter:
        return []
    on = placement[problem.groups]
    secs = problem.compute_secs[np.arange(problem.num_operations), on]
    displaced_secs = np.bincount(
        on, np.where(moves[problem.groups], secs, 0.0), problem.num_devices
    )
    return [
        Limit(
            FOR_WANT_OF_MEMORY,
            device.name,
            min(device.busy_secs, float(each_secs)) / max(report.step_secs, 1e-300),
        )
        for device, each_secs in zip(report.devices, displaced_secs, strict=True)
        if each_secs > 0
    ]


def _sum_by_channel(report: StepReport) -> dict[str, float]:
    """Adds up the busy seconds of the links of each channel."""
    secs: dict[str, float] = {}
    for link in report.links:
        name = link.channel or f"{link.source} -> {link.destination}"
        secs[name] = secs.get(name, 0.0) + link.busy_secs
    return secs
