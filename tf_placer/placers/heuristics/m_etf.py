"""m-ETF: earliest task first with limited memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.earliest_task_first import schedule_earliest_first
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.list_scheduler import (
    COMMUNICATION_WEIGHTS,
    MEMORY_SHARES,
    ListScheduler,
    generate_placements,
    list_device_sets,
    restrict_to_devices,
)
from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts, read_schedule_costs
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MEtf"]


class MEtf(ListScheduler):
    """Always schedules the operation that can start first, on the device where it can and fits.

    Proposes the schedules on all devices but the CPU, as published, and on all devices, for
    several weights of the communication and shares of the memory.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020; Hwang et
        al., Scheduling precedence graphs in systems with interprocessor communication times, SIAM
        Journal on Computing 18(2), 1989.
    """

    name = "m_etf"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        memories = estimate_group_memories(problem)
        memory_bytes = np.array([device.memory_bytes for device in problem.devices], np.float64)
        limits = [memory_bytes * share for share in MEMORY_SHARES]
        costs = [
            read_schedule_costs(problem, communication_weight=w) for w in COMMUNICATION_WEIGHTS
        ]
        for devices in list_device_sets(problem.num_devices):
            allowed = restrict_to_devices(legal, devices)
            favorites = self._find_favorites(costs[0], allowed)
            for weighted in costs:
                schedule = functools.partial(schedule_earliest_first, weighted, favorites=favorites)
                yield from generate_placements(schedule, allowed, memories, limits)

    def _find_favorites(self, costs: ScheduleCosts, allowed: np.ndarray) -> list[int] | None:
        """Finds the favorite child of each operation; see `schedule_earliest_first`."""
        return None
