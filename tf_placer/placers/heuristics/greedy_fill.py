"""A placer that fills one device after the other, as people do it by hand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.fill_devices import fill_devices
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.placers.heuristics.list_scheduler import ListScheduler
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["GreedyFill"]

# The memory for copies from other devices is not known beforehand, so try several limits.
_FILLED_SHARES = (1.0, 0.9, 0.75, 0.5)


class GreedyFill(ListScheduler):
    """Fills the accelerators in order, layer by layer, and then the CPU.

    Makes one proposal for each of several shares of the memory.

    References:
        Hugging Face Accelerate, `device_map="auto"`: first the accelerators, then the memory of the
        CPU.
    """

    name = "greedy_fill"

    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        memories = estimate_group_memories(problem)
        order = np.argsort(groups.layers, kind="stable").tolist()
        devices = [*range(1, problem.num_devices), 0]
        for share in _FILLED_SHARES:
            limits = [share * device.memory_bytes for device in problem.devices]
            binding = GroupBinding(legal, memories, limits)
            fill_devices(order, devices, binding)
            yield binding.build_placement()
