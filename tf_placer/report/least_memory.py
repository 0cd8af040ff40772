"""The least memory of devices with which some placement fits."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.device_labels import device_labels
from tf_placer.simulation.host_offload import HostOffload
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "bisect_memory",
    "describe_least_memory",
    "describe_offload",
    "find_least_memory",
    "find_needed_memory",
]

# The search ends when a smaller size is at most this share smaller.
_TOLERANCE = 0.01
# Each size has this share of the time left, because sizes that do not suffice use all of it.
_SHARE_OF_TIME_LEFT = 0.25
_MIN_SIMULATED, _SIMULATED_PER_GROUP = 2_000, 50
_MAX_LISTED_DEVICES = 4


def find_least_memory(
    problem: PlacementProblem,
    groups: GroupGraph,
    placement: np.ndarray,
    *,
    search_secs: float,
    seed: int = 0,
) -> int | None:
    """Finds the least memory of each device with which some placement fits.

    Devices that have more memory keep it. The size is an upper bound: it is enough for a placement
    that was found.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a legal placement to start from, such as the one that exceeds
            the memory least.
        search_secs: time limit in seconds.
        seed: the seed of the searches.

    Returns:
        The size in bytes, which is enough on each device with less; None if the given placement
        fits the devices as they are.
    """
    found = bisect_memory(
        lambda size: _raise_memory(problem, size),
        lambda peak_bytes: find_needed_memory(problem, peak_bytes.tolist()),
        groups,
        simulate_candidates(problem, Simulator(problem), placement[None])[0],
        _find_bound(problem),
        search_secs=search_secs,
        seed=seed,
    )
    return find_needed_memory(problem, found.peak_bytes.tolist()) or None


def find_needed_memory(problem: PlacementProblem, peak_bytes: Sequence[int]) -> int:
    """Finds the memory of devices with which a placement fits; 0 if it fits as they are.

    Args:
        problem: the problem.
        peak_bytes: the peak memory of each device under the placement.
    """
    pairs = zip(problem.devices, peak_bytes, strict=True)
    return max((peak for device, peak in pairs if peak > device.memory_bytes), default=0)


def bisect_memory(
    change: Callable[[int], PlacementProblem],
    find_needed: Callable[[np.ndarray], int],
    groups: GroupGraph,
    known: Candidate,
    low_bytes: int,
    *,
    search_secs: float,
    seed: int,
) -> Candidate:
    """Finds a placement that needs as little memory as possible, by bisection of the size.

    Where a search finds a placement that fits a size, a smaller size is tried, else a larger one.
    The memory that placements need, found on the way, narrows the range, too.

    Args:
        change: makes the problem whose devices have memory of a given size in bytes.
        find_needed: finds the size that a placement needs, from its peaks, int64 [num_devices].
        groups: the groups of the problem.
        known: a placement to start from.
        low_bytes: a size that is not enough.
        search_secs: time limit in seconds.
        seed: the seed of the searches.

    Returns:
        The placement that needs the smallest size of those found.
    """
    end_secs = time.monotonic() + search_secs
    high_bytes = find_needed(known.peak_bytes)
    while high_bytes - low_bytes > _TOLERANCE * high_bytes:
        left_secs = end_secs - time.monotonic()
        if left_secs <= 0:
            break
        size = (low_bytes + high_bytes) // 2
        result = coarse_to_fine_search(
            change(size),
            groups,
            max_secs=_SHARE_OF_TIME_LEFT * left_secs,
            max_simulated=max(_MIN_SIMULATED, _SIMULATED_PER_GROUP * groups.num_groups),
            stop_secs=math.inf,
            starts=[("known", known.placement)],
            seed=seed,
        )
        if (needed := find_needed(result.best.peak_bytes)) < high_bytes:
            high_bytes, known = needed, result.best
        if result.best.excess_bytes:
            low_bytes = size
        if result.interrupted:
            break
    return known


def _raise_memory(problem: PlacementProblem, memory_bytes: int) -> PlacementProblem:
    """Gives each device of a problem at least this memory."""
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(device.memory_bytes, memory_bytes))
        for device in problem.devices
    )
    return dataclasses.replace(problem, devices=devices)


def _find_bound(problem: PlacementProblem) -> int:
    """Finds a size below which nothing fits: that of the smallest device, or of a large group."""
    memory_bytes = np.array([device.memory_bytes for device in problem.devices], np.int64)
    legal = legal_devices(problem)
    resident = np.zeros(len(legal), np.int64)
    np.add.at(resident, problem.groups, problem.resident_bytes)
    room = np.where(legal, memory_bytes, 0).max(axis=1)
    return max(int(memory_bytes.min()), int(resident[resident > room].max(initial=0)))


def describe_least_memory(problem: PlacementProblem, least_bytes: int) -> str:
    """Describes the memory that devices would need, as a clause."""
    labels = device_labels([device.name for device in problem.devices])
    short = [labels[each.name] for each in problem.devices if each.memory_bytes < least_bytes]
    devices = f"each of {', '.join(short)}"
    if len(short) == 1:
        devices = short[0]
    elif len(short) > _MAX_LISTED_DEVICES:
        devices = f"each of the {len(short)} devices with less"
    return f"{format_bytes(least_bytes)} on {devices} would do"


def describe_offload(offload: HostOffload) -> str:
    """Describes a step whose activations wait on the CPU, as a clause."""
    longer = offload.step_secs / max(offload.unmoved_secs, 1e-300) - 1.0
    return (
        f"with {format_bytes(offload.moved_bytes)} of activations moved to the CPU and back it "
        f"would fit: {format_step(offload.step_secs)} a step, {max(longer, 0.0):.0%} slower than "
        "with enough memory (an estimate; offload changes a graph or a model so)"
    )
