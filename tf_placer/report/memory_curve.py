"""Step times within less memory: the trade-off between the fullest device and the step."""

from __future__ import annotations

import dataclasses
import math
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
    "MoreMemory",
    "describe_memory_curve",
    "describe_more_memory",
    "find_smallest_within",
    "search_memory_curve",
    "search_more_memory",
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
# With more memory, a step that is longer by this share is about as short as any.
_MORE_LONGER_SHARE = 0.1
# Searches for more memory, the first of them with unlimited memory.
_NUM_MORE = 5
# Sizes whose ratio is less are the same for those who buy.
_CLOSE = 1.05
# Steps that differ by less are not told apart.
_LEAST_LONGER = 0.005


@dataclasses.dataclass(frozen=True)
class MemoryPoint:
    """A placement of a memory curve.

    Attributes:
        peak_bytes: the peak memory of the fullest GPU, or of the fullest device without GPUs.
        step_secs: the simulated step time.
    """

    peak_bytes: int
    step_secs: float


@dataclasses.dataclass(frozen=True)
class MoreMemory:
    """The memory of each GPU for a step that is about as short as with unlimited memory.

    Attributes:
        peak_bytes: the memory of each GPU.
        step_secs: the simulated step then, at most 10 % longer than with unlimited memory.
        unlimited_secs: the shortest step that was found with unlimited memory.
        assignment: the placement: a device index per group.
    """

    peak_bytes: int
    step_secs: float
    unlimited_secs: float
    assignment: tuple[int, ...] = dataclasses.field(default=(), repr=False, compare=False)


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


def search_more_memory(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    known: Sequence[Candidate] = (),
    search_secs: float,
    seed: int = 0,
) -> MoreMemory | None:
    """Searches for the memory of each GPU that work on a CPU for want of it would need.

    First searches with unlimited memory, and then by bisection for the smallest memory with which
    a step is at most 10 % longer. Every placement that is known or found counts with its own peak.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a placement that fits.
        known: other placements to start from, which need not fit.
        search_secs: time limit of the searches.
        seed: the seed of the searches.

    Returns:
        The smallest memory that was found; None if no work would move to a GPU, or if the step is
        not more than 2 % shorter then.
    """
    start_secs = time.monotonic()
    moved, moves = move_to_gpus(problem, placement)
    if not moves.any():
        return None
    gpus = find_accelerators(problem)
    unlimited = _raise_memory(problem, gpus, _UNLIMITED_BYTES)
    simulator = Simulator(unlimited)
    starts = np.stack([placement, *moved, *(each.placement for each in known)]).astype(np.int32)
    now, *others = simulate_candidates(unlimited, simulator, starts)
    # Only a CPU can lack memory here.
    found = [now, *(each for each in others if not each.excess_bytes)]
    least_secs = _LEAST_SEARCH_STEPS * (time.monotonic() - start_secs)
    low_bytes = max(problem.devices[index].memory_bytes for index in gpus)
    size, stop_secs = _UNLIMITED_BYTES, 0.0
    for number in range(_NUM_MORE):
        left_secs = start_secs + search_secs - time.monotonic()
        if left_secs < least_secs or size <= _CLOSE * low_bytes:
            break
        result = coarse_to_fine_search(
            _raise_memory(problem, gpus, size),
            groups,
            max_secs=left_secs / (_NUM_MORE - number),
            stop_secs=stop_secs,
            starts=[("known", each.placement) for each in found],
            seed=seed,
        )
        if result.best.excess_bytes or (number and result.best.step_secs > stop_secs):
            low_bytes = size
        [again] = simulate_candidates(unlimited, simulator, result.best.placement[None])
        if not again.excess_bytes:
            found.append(again)
        if result.interrupted:
            break
        stop_secs = _find_most_secs(found)
        if stop_secs >= now.step_secs:
            return None
        enough_bytes, _ = _find_smallest_memory(problem, gpus, found)
        # Memory is sold in doublings, so the ratio of the sizes is halved.
        size = math.isqrt(low_bytes * enough_bytes)
    if _find_most_secs(found) >= now.step_secs:
        return None
    enough_bytes, best = _find_smallest_memory(problem, gpus, found)
    shortest_secs = min(each.step_secs for each in found)
    assignment = tuple(best.placement.tolist())
    return MoreMemory(enough_bytes, best.step_secs, shortest_secs, assignment)


def _find_most_secs(found: Sequence[Candidate]) -> float:
    """Finds the longest step that is about as short as with unlimited memory, and gains by it.

    Args:
        found: the placements with unlimited memory, the present one first.

    Returns:
        The step in seconds; the present one if more memory gains too little.
    """
    now_secs = found[0].step_secs
    shortest_secs = min(each.step_secs for each in found)
    if LEAST_MEMORY_GAIN * shortest_secs >= now_secs:
        return now_secs
    about_secs = (1.0 + _MORE_LONGER_SHARE) * shortest_secs
    return min(about_secs, max(shortest_secs, now_secs / LEAST_MEMORY_GAIN))


def _find_smallest_memory(
    problem: PlacementProblem, gpus: np.ndarray, found: Sequence[Candidate]
) -> tuple[int, Candidate]:
    """Finds the placement that needs the smallest GPUs of those about as fast as the fastest.

    Returns:
        The memory of each GPU with which it fits, and the placement.
    """
    most_secs = _find_most_secs(found)
    sizes = [
        (_find_size(problem, gpus, each), each) for each in found if each.step_secs <= most_secs
    ]
    return min(sizes, key=lambda pair: (pair[0], pair[1].step_secs))


def _find_size(problem: PlacementProblem, gpus: np.ndarray, candidate: Candidate) -> int:
    """Finds the memory of each GPU with which a placement fits."""
    size = int(candidate.peak_bytes[gpus].max())
    # The allocator of a fuller GPU loses more of its memory, so the size grows until all fits.
    for _ in range(_MAX_ROUNDS):
        enough = _raise_memory(problem, gpus, size)
        [again] = simulate_candidates(enough, Simulator(enough), candidate.placement[None])
        if not again.excess_bytes:
            break
        size = int(again.peak_bytes[gpus].max())
    return size


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
    # Only GPUs can have nothing to hold: the CPU does their work.
    on_gpus = [point for point in points if point.peak_bytes] or points
    on_cpu = ""
    if len(on_gpus) < len(points):
        on_cpu = f"; with everything on the CPU it takes {format_step(points[-1].step_secs)}"
    near, least = find_smallest_within(on_gpus, _LONGER_SHARE), on_gpus[-1]
    if format_bytes(near.peak_bytes) == format_bytes(least.peak_bytes):
        return (
            f"{format_bytes(points[0].peak_bytes)} on the fullest device is needed; nothing that "
            f"was tried fits less{on_cpu}"
        )
    longer = least.step_secs / max(points[0].step_secs, 1e-300) - 1.0
    return (
        f"{format_bytes(near.peak_bytes)} on the fullest device, perhaps less, is enough for a "
        f"step at most {_LONGER_SHARE:.0%} longer, and {format_bytes(least.peak_bytes)} for one "
        f"{longer:.0%} longer; the shortest takes {format_bytes(points[0].peak_bytes)}{on_cpu}"
    )


def describe_more_memory(more: MoreMemory, now_secs: float) -> str:
    """Describes the step with more memory, as a clause.

    Args:
        more: the memory of each GPU, and the step then.
        now_secs: the present step.
    """
    ratio = now_secs / max(more.step_secs, 1e-300)
    longer = more.step_secs / max(more.unlimited_secs, 1e-300) - 1.0
    unlimited = f"; with unlimited memory {format_step(more.unlimited_secs)}"
    return (
        f"{format_bytes(more.peak_bytes)} on each GPU, perhaps less, would do for a step of "
        f"{format_step(more.step_secs)}, {ratio:.2f}x as fast"
        + (unlimited if longer >= _LEAST_LONGER else "")
    )
