"""The groups in topological order, one part per device."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.list_scheduler import (
    ListScheduler,
    accelerators_first,
    legal_on,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import group_graph, topological_groups

__all__ = ["Topological"]


class Topological(ListScheduler):
    """Gives each device the next part of the topological order, all of equal work.

    A group is where its first operation is in the order. Its work is that of its operations, each
    on its fastest device.

    Proposes the parts on all devices but the CPU, and on all devices.
    """

    name = "topological"

    def _placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        order = topological_groups(problem)
        work = group_graph(problem).work[order]
        middles = np.cumsum(work) - work / 2
        for devices in accelerators_first(problem.num_devices):
            cuts = work.sum() * np.arange(1, len(devices)) / len(devices)
            placement = np.empty(len(order), np.int64)
            placement[order] = np.array(devices)[np.searchsorted(cuts, middles, side="right")]
            allowed = legal_on(legal, devices)
            may_go = allowed[np.arange(len(order)), placement]
            yield np.where(may_go, placement, allowed.argmax(axis=1))
