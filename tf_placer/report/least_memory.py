"""The least memory of devices with which some placement fits."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.device_labels import device_labels
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_bytes

__all__ = ["describe_least_memory", "find_least_memory"]

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

    Bisects the size: where a search finds a placement that fits if each device has at least this
    memory, a smaller size is tried, else a larger one. Peaks of all placements found on the way
    narrow the range, too. Devices that have more memory keep it. The size is an upper bound: it is
    enough for the best placement found.

    Args:
        problem: the problem.
        groups: its groups.
        placement: int32 [num_groups], a legal placement to start from, such as the one that exceeds
            the memory least.
        search_secs: time limit in seconds.
        seed: the seed of the searches.

    Returns:
        The size in bytes, which is enough on each device with less; None if a placement fits the
        devices as they are.
    """
    end_secs = time.monotonic() + search_secs
    known = placement
    peaks = Simulator(problem).simulate(known[None]).peak_bytes[0]
    low, high = _find_bound(problem), _find_needed(problem, peaks)
    while high - low > _TOLERANCE * high and (left_secs := end_secs - time.monotonic()) > 0:
        middle = (low + high) // 2
        found = coarse_to_fine_search(
            raise_memory(problem, middle),
            groups,
            max_secs=_SHARE_OF_TIME_LEFT * left_secs,
            max_simulated=max(_MIN_SIMULATED, _SIMULATED_PER_GROUP * groups.num_groups),
            stop_secs=math.inf,
            starts=[("known", known)],
            seed=seed,
        )
        needed = _find_needed(problem, found.best.peak_bytes)
        if needed < high:
            high, known = needed, found.best.placement
        if found.best.excess_bytes:
            low = middle
        if found.interrupted:
            break
    return high or None


def raise_memory(problem: PlacementProblem, memory_bytes: int) -> PlacementProblem:
    """Gives each device of a problem at least this memory."""
    devices = tuple(
        dataclasses.replace(device, memory_bytes=max(device.memory_bytes, memory_bytes))
        for device in problem.devices
    )
    return dataclasses.replace(problem, devices=devices)


def _find_needed(problem: PlacementProblem, peak_bytes: np.ndarray) -> int:
    """Finds the memory that each device with less needs for these peaks; 0 if all have enough."""
    pairs = zip(problem.devices, peak_bytes.tolist(), strict=True)
    return max((peak for device, peak in pairs if peak > device.memory_bytes), default=0)


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
