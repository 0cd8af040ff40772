"""m-TOPO: the groups in topological order, with equal memory on all devices."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.fill_in_order import fill_in_order
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import GroupMemory, group_memories
from tf_placer.placers.heuristics.list_scheduler import (
    ListScheduler,
    accelerators_first,
    legal_on,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import topological_groups

__all__ = ["MTopo", "equal_share"]


class MTopo(ListScheduler):
    """Fills one device after the other up to an equal share of all memory needed.

    A group is where its first operation is in the topological order.

    Proposes that on all devices but the CPU, as published, and on all devices, the CPU last.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020.
    """

    name = "m_topo"

    def _placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        memory = group_memories(problem)[0].without_copies()
        order = topological_groups(problem).tolist()
        for devices in accelerators_first(problem.num_devices):
            share = equal_share(memory, len(devices))
            limits = [min(share, float(device.memory_bytes)) for device in problem.devices]
            binding = GroupBinding(legal_on(legal, devices), [memory], limits)
            cpu_last = sorted(devices, key=lambda device: (device == 0, device))
            fill_in_order(order, cpu_last, binding)
            yield binding.placement()


def equal_share(memory: GroupMemory, num_devices: int) -> float:
    """Computes what each device holds at most if groups are dealt out evenly, whatever their order.

    Args:
        memory: what groups hold.
        num_devices: how many devices there are.

    Returns:
        The mean, and the largest group and temporary beside it, in bytes.
    """
    mean = memory.kept_bytes.sum() / num_devices
    return float(mean + memory.kept_bytes.max() + memory.temporary_bytes.max())
