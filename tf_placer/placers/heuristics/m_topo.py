"""m-TOPO: the groups in topological order, with equal memory on all devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.fill_devices import fill_devices
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import GroupMemory, estimate_group_memories
from tf_placer.placers.heuristics.list_scheduler import (
    ListScheduler,
    list_device_sets,
    restrict_to_devices,
)
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import topological_groups

__all__ = ["MTopo", "compute_equal_share"]


class MTopo(ListScheduler):
    """Fills one device after the other up to an equal share of all memory needed.

    Groups are ordered by their first operation in topological order.

    Proposes a placement on all devices but the CPU, as published, and one on all devices, with the
    CPU last.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020.
    """

    name = "m_topo"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        memory = estimate_group_memories(problem)[0].drop_copies()
        order = topological_groups(problem).tolist()
        for devices in list_device_sets(problem.num_devices):
            limits = [float(device.memory_bytes) for device in problem.devices]
            share = compute_equal_share(memory, [limits[device] for device in devices])
            limits = [min(share, limit) for limit in limits]
            binding = GroupBinding(restrict_to_devices(legal, devices), [memory], limits)
            cpu_last = sorted(devices, key=lambda device: (device == 0, device))
            fill_devices(order, cpu_last, binding)
            yield binding.build_placement()


def compute_equal_share(memory: GroupMemory, memory_bytes: Sequence[float]) -> float:
    """Computes a limit up to which devices can be filled in any order so that all groups fit.

    Devices with less memory than the limit are filled up to their memory.

    Args:
        memory: the memory of the groups.
        memory_bytes: the memory of each device.

    Returns:
        The sum of the mean of the devices, the largest group, and the largest temporary, in bytes.
        The mean is that of the devices with more memory, of all that the others leave to them. If
        the groups may not fit in any order, the largest memory.
    """
    reserve = float(memory.kept_bytes.max() + memory.temporary_bytes.max())
    left = float(memory.kept_bytes.sum())
    sizes = sorted(max(size - reserve, 0.0) for size in memory_bytes)
    for number, size in enumerate(sizes):
        mean = left / (len(sizes) - number)
        if mean <= size:
            return mean + reserve
        left -= size
    return max(memory_bytes)
