"""Step times within less memory: the trade-off between the fullest device and the step."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.least_memory import bisect_memory
from tf_placer.report.limits import LEAST_MEMORY_GAIN, move_to_gpus
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "MemoryPoint",
    "describe_memory_curve",
    "describe_memory_without_cpu",
    "find_smallest_within",
    "search_memory_curve",
    "search_memory_without_cpu",
]

# Limits between the least memory and the peak of the given placement.
_NUM_BETWEEN = 4
_LEAST_SHARE_OF_TIME = 0.4
# A step that is longer by this share is often worth the memory.
_LONGER_SHARE = 0.05
_UNLIMITED_BYTES = 2**50
_MAX_ROUNDS = 10
# A search is worth its preparation from this multiple of the time to simulate the starts.
_LEAST_SEARCH_STEPS = 5


@dataclasses.dataclass(frozen=True)
class MemoryPoint:
    """A placement of a memory curve.

    Attributes:
        peak_bytes: the peak memory of the fullest GPU, or of the fullest device without GPUs.
        step_secs: the simulated step time.
    """

    peak_bytes: int
    step_secs: float


def search_memory_curve(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    known: Sequence[Candidate] = (),
    search_secs: float,
    seed: int = 0,
) -> tuple[MemoryPoint, ...]:
    """Searches for placements with less memory on the fullest GPU, or device without GPUs.

    First finds the placement that needs least, by bisection; then searches for the shortest step
    within some limits between the given placement and that, the largest first, the least last. Each
    search starts from the placements found before.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a placement that fits.
        known: other placements to start from; those that do not fit are left out.
        search_secs: time limit of all searches together.
        seed: the seed of the searches.

    Returns:
        The given placement, and those found with less memory; each needs less memory and takes
        longer than the one before.
    """
    end_secs = time.monotonic() + search_secs
    limited = find_accelerators(problem)
    others = np.setdiff1d(np.arange(problem.num_devices), limited)
    memory_bytes = np.array([device.memory_bytes for device in problem.devices], np.int64)
    too_much = int(memory_bytes.max()) + 1

    def find_peak(peak_bytes: np.ndarray) -> int:
        is_over = bool((peak_bytes[others] > memory_bytes[others]).any())
        return too_much if is_over else int(peak_bytes[limited].max())

    def limit(size: int) -> PlacementProblem:
        return _limit_memory(problem, limited, size)

    [now] = simulate_candidates(problem, Simulator(problem), placement[None])
    fitting = [now, *(each for each in known if not each.excess_bytes)]
    least = bisect_memory(
        limit,
        find_peak,
        groups,
        min(fitting, key=lambda each: find_peak(each.peak_bytes)),
        0,
        search_secs=_LEAST_SHARE_OF_TIME * search_secs,
        seed=seed,
    )
    low_bytes, high_bytes = find_peak(least.peak_bytes), find_peak(now.peak_bytes)
    found = [*fitting, least]
    for number in range(_NUM_BETWEEN if low_bytes < high_bytes else -1, -1, -1):
        left_secs = end_secs - time.monotonic()
        if left_secs <= 0:
            break
        size = low_bytes + (high_bytes - low_bytes) * number // (_NUM_BETWEEN + 1)
        result = coarse_to_fine_search(
            limit(size),
            groups,
            max_secs=left_secs / (number + 1),
            starts=[("known", each.placement) for each in found],
            seed=seed,
        )
        if not result.best.excess_bytes:
            found.append(result.best)
        if result.interrupted:
            break
    return _select_best(MemoryPoint(find_peak(c.peak_bytes), c.step_secs) for c in found)


def search_memory_without_cpu(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    known: Sequence[Candidate] = (),
    search_secs: float,
    seed: int = 0,
) -> MemoryPoint | None:
    """Searches for the memory of each GPU with which no work is on a CPU for want of it.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a placement that fits.
        known: other placements to start from, which need not fit.
        search_secs: time limit of the searches for less memory.
        seed: the seed of the searches.

    Returns:
        The least memory found for a step at most 5 % longer than the shortest, and more than 2 %
        shorter than the present one; None if no work would move to a GPU, or that gains no more.
    """
    start_secs = time.monotonic()
    moved, moves = move_to_gpus(problem, placement)
    if not moves.any():
        return None
    gpus = find_accelerators(problem)
    hosts = np.setdiff1d(np.arange(problem.num_devices), gpus)
    secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(secs, problem.groups, problem.compute_secs)
    is_faster = secs[:, gpus].min(axis=1) < secs[:, hosts].min(axis=1)
    compute_secs = problem.compute_secs.copy()
    compute_secs[np.ix_(np.flatnonzero(is_faster[problem.groups]), hosts)] = np.inf
    on_gpus = dataclasses.replace(problem, compute_secs=compute_secs)
    fastest_gpu = gpus[secs[:, gpus].argmin(axis=1)]
    starts = np.stack([*moved, *(each.placement for each in known)])
    # Some groups of other placements have to leave the CPU, too.
    starts = np.where(is_faster & np.isin(starts, hosts), fastest_gpu, starts).astype(np.int32)

    def raise_memory(size: int) -> PlacementProblem:
        return _raise_memory(on_gpus, gpus, size)

    def find_peak(candidate: Candidate) -> int:
        return int(candidate.peak_bytes[gpus].max())

    unlimited = raise_memory(_UNLIMITED_BYTES)
    found = simulate_candidates(unlimited, Simulator(unlimited), starts)
    fastest = min(found, key=lambda each: (each.excess_bytes, each.step_secs))
    # The allocator of a fuller GPU loses more of its memory, so the size grows until all fits.
    size = find_peak(fastest)
    for _ in range(_MAX_ROUNDS):
        enough = raise_memory(size)
        [fastest] = simulate_candidates(enough, Simulator(enough), fastest.placement[None])
        if not fastest.excess_bytes:
            break
        size = find_peak(fastest)
    points: tuple[MemoryPoint, ...] = (MemoryPoint(size, fastest.step_secs),)
    left_secs = start_secs + search_secs - time.monotonic()
    if left_secs > _LEAST_SEARCH_STEPS * (time.monotonic() - start_secs):
        points = search_memory_curve(
            enough,
            groups,
            fastest.placement,
            known=simulate_candidates(enough, Simulator(enough), starts),
            search_secs=left_secs,
            seed=seed,
        )
    [now_secs] = Simulator(problem, memory=False).simulate(placement[None]).step_secs.tolist()
    gaining = [each for each in points if LEAST_MEMORY_GAIN * each.step_secs < now_secs]
    return find_smallest_within(gaining, _LONGER_SHARE) if gaining else None


def _raise_memory(problem: PlacementProblem, raised: np.ndarray, size: int) -> PlacementProblem:
    """Gives some devices at least this memory."""
    devices = list(problem.devices)
    for index in raised.tolist():
        memory_bytes = max(devices[index].memory_bytes, size)
        devices[index] = dataclasses.replace(devices[index], memory_bytes=memory_bytes)
    return dataclasses.replace(problem, devices=tuple(devices))


def _limit_memory(problem: PlacementProblem, limited: np.ndarray, size: int) -> PlacementProblem:
    """Limits the memory of some devices to a size."""
    devices = list(problem.devices)
    for index in limited.tolist():
        memory_bytes = min(devices[index].memory_bytes, size)
        devices[index] = dataclasses.replace(devices[index], memory_bytes=memory_bytes)
    return dataclasses.replace(problem, devices=tuple(devices))


def _select_best(points: Iterable[MemoryPoint]) -> tuple[MemoryPoint, ...]:
    """Selects the points that no other beats in both, the one with the shortest step first."""
    best: list[MemoryPoint] = []
    for point in sorted(points, key=lambda each: (each.step_secs, each.peak_bytes)):
        if not best or point.peak_bytes < best[-1].peak_bytes:
            best.append(point)
    return tuple(best)


def find_smallest_within(points: Sequence[MemoryPoint], share: float) -> MemoryPoint:
    """Finds the point of a curve with the least memory whose step is at most a share longer.

    Args:
        points: the points of the curve, at least one.
        share: the share of the shortest step, such as 0.05.
    """
    most_secs = (1.0 + share) * points[0].step_secs
    return next(each for each in reversed(points) if each.step_secs <= most_secs)


def describe_memory_curve(points: Sequence[MemoryPoint]) -> str:
    """Describes a curve in one sentence, without a full stop.

    Args:
        points: the points of the curve, at least one.
    """
    near, least = find_smallest_within(points, _LONGER_SHARE), points[-1]
    longer = least.step_secs / max(points[0].step_secs, 1e-300) - 1.0
    # Only GPUs can have nothing to hold: the CPU does their work.
    on_cpu = "" if least.peak_bytes else " with everything on the CPU"
    return (
        f"{format_bytes(near.peak_bytes)} on the fullest device, perhaps less, is enough for a "
        f"step at most {_LONGER_SHARE:.0%} longer, and {format_bytes(least.peak_bytes)} for one "
        f"{longer:.0%} longer{on_cpu}; the shortest takes {format_bytes(points[0].peak_bytes)}"
    )


def describe_memory_without_cpu(point: MemoryPoint, now_secs: float) -> str:
    """Describes the memory with which no work is on a CPU for want of it, as a clause.

    Args:
        point: the memory of each GPU, and the step then.
        now_secs: the present step.
    """
    ratio = now_secs / max(point.step_secs, 1e-300)
    return (
        f"{format_bytes(point.peak_bytes)} on each GPU, perhaps less, would do for what is on the "
        f"CPU only for want of memory: {format_step(point.step_secs)} a step, {ratio:.2f}x as fast"
    )
