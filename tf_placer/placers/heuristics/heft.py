"""HEFT: a list scheduler by the length of the critical path behind each operation."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.util.topological_order import compute_longest_paths
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.list_scheduler import (
    COMMUNICATION_WEIGHTS,
    MEMORY_SHARES,
    ListScheduler,
    generate_placements,
    list_device_sets,
    restrict_to_devices,
)
from tf_placer.placers.heuristics.schedule_costs import (
    ScheduleCosts,
    average_link,
    average_secs,
    read_schedule_costs,
)
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Heft", "compute_upward_ranks", "schedule_heft"]


class Heft(ListScheduler):
    """Heterogeneous earliest finish time.

    Operations are scheduled in the order of their upward ranks, the mean seconds from their start
    to the end of the step, each on the device where it ends first; it may start in a gap between
    others.

    Proposes the schedules on all devices and on all but the CPU, for several weights of the
    communication, each as published and then with the memory of the devices as a limit.

    References:
        Topcuoglu, Hariri and Wu, Performance-Effective and Low-Complexity Task Scheduling for
        Heterogeneous Computing, IEEE TPDS 13(3), 2002, section 4.1. Memory as in Jeon et al.,
        Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020.
    """

    name = "heft"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        memories = estimate_group_memories(problem)
        memory_bytes = np.array([device.memory_bytes for device in problem.devices], np.float64)
        no_limit = np.full(problem.num_devices, np.inf)
        limits = [no_limit, *(memory_bytes * share for share in MEMORY_SHARES)]
        for weight in COMMUNICATION_WEIGHTS:
            costs = read_schedule_costs(problem, communication_weight=weight)
            for devices in reversed(list_device_sets(problem.num_devices)):
                allowed = restrict_to_devices(legal, devices)
                ranks = compute_upward_ranks(costs, allowed)
                schedule = functools.partial(schedule_heft, costs, ranks)
                yield from generate_placements(schedule, allowed, memories, limits)


def compute_upward_ranks(costs: ScheduleCosts, allowed: np.ndarray) -> list[float]:
    """Computes the mean seconds from the start of each operation to the end of the step.

    Args:
        costs: the costs of the operations.
        allowed: bool [num_groups, num_devices], true where a group may go.

    Returns:
        For each operation the sum of its own mean seconds on its allowed devices, and the largest
        rank of its followers, each with the mean seconds of the transfer to the follower.
    """
    own_secs = np.array(average_secs(costs, allowed))
    latency, per_byte = average_link(costs, allowed)
    inputs = [(i, before) for i, sent in enumerate(costs.inputs) for before, _ in sent]
    sizes = np.array([size for sent in costs.inputs for _, size in sent], np.float64)
    after_secs = compute_longest_paths(
        np.array(costs.order[::-1]),
        np.array(inputs, np.int64).reshape(-1, 2),
        own_secs,
        latency + sizes * per_byte,
    )
    ranks: list[float] = (own_secs + after_secs).tolist()
    return ranks


def schedule_heft(
    costs: ScheduleCosts, ranks: list[float], binding: GroupBinding
) -> tuple[list[int], list[float], list[float]]:
    """Schedules all operations.

    Args:
        costs: the costs of the operations.
        ranks: the upward rank of each operation.
        binding: the allowed devices of the groups; binds the groups to the chosen devices.

    Returns:
        For each operation its device, start and end, in seconds.
    """
    count = len(costs.order)
    timelines = [[_Timeline() for _ in range(min(slots, count))] for slots in costs.slots]
    devices, starts, ends = [-1] * count, [0.0] * count, [0.0] * count
    # The sort is stable, so operations of no cost keep their topological order.
    for operation in sorted(costs.order, key=lambda operation: -ranks[operation]):
        group = costs.groups[operation]
        first_end = float("inf")
        for device in binding.list_choices(group):
            arrival = costs.arrival_secs(operation, device, devices, ends)
            secs = costs.secs[operation][device]
            for timeline in timelines[device]:
                start = timeline.find_earliest_start(arrival, secs)
                if start + secs < first_end:
                    first_end = start + secs
                    best = device, timeline, start, secs
        device, timeline, start, secs = best
        timeline.add(start, secs)
        binding.bind(group, device)
        devices[operation], starts[operation], ends[operation] = device, start, start + secs
    return devices, starts, ends


class _Timeline:
    """The busy times of a slot of a device."""

    def __init__(self) -> None:
        # Busy blocks in order, with free time between them.
        self._starts: list[float] = []
        self._ends: list[float] = []

    def find_earliest_start(self, ready: float, secs: float) -> float:
        """Finds the first start from `ready` on with this many free seconds."""
        for block in range(bisect.bisect_right(self._ends, ready), len(self._ends)):
            if ready + secs <= self._starts[block]:
                break
            ready = max(ready, self._ends[block])
        return ready

    def add(self, start: float, secs: float) -> None:
        """Marks a free time as busy."""
        if not secs:
            return
        end = start + secs
        place = bisect.bisect_left(self._starts, start)
        joins_before = place > 0 and self._ends[place - 1] == start
        joins_after = place < len(self._starts) and self._starts[place] == end
        if joins_before and joins_after:
            self._ends[place - 1] = self._ends.pop(place)
            del self._starts[place]
        elif joins_before:
            self._ends[place - 1] = end
        elif joins_after:
            self._starts[place] = start
        else:
            self._starts.insert(place, start)
            self._ends.insert(place, end)
