"""A placer that cuts the topological order into one part per device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.list_scheduler import (
    ListScheduler,
    list_device_sets,
    restrict_to_devices,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, topological_groups

__all__ = ["Topological"]


class Topological(ListScheduler):
    """Assigns consecutive parts of the topological order, of equal work, to the devices.

    Groups are ordered by their first operation. The work of a group is the sum of the seconds of
    its operations, each on its fastest device.

    Proposes the parts on all devices but the CPU, and on all devices.
    """

    name = "topological"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        order = topological_groups(problem)
        work = group_graph(problem).work[order]
        middles = np.cumsum(work) - work / 2
        for devices in list_device_sets(problem.num_devices):
            cuts = work.sum() * np.arange(1, len(devices)) / len(devices)
            placement = np.empty(len(order), np.int64)
            placement[order] = np.array(devices)[np.searchsorted(cuts, middles, side="right")]
            allowed = restrict_to_devices(legal, devices)
            may_go = allowed[np.arange(len(order)), placement]
            yield np.where(may_go, placement, allowed.argmax(axis=1))
