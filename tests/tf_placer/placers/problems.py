"""Placement problems made by hand for the tests of placers that need costs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["build_group_problem", "build_task_problem"]


def build_task_problem(
    secs: Sequence[Sequence[float]],
    edges: Sequence[tuple[int, int, int]] = (),
    *,
    groups: Sequence[int] | None = None,
    resident_bytes: Sequence[int] | None = None,
    temp_bytes: Sequence[int] | None = None,
    memory_bytes: int | Sequence[int] = 1 << 40,
    latency_secs: float = 0.0,
    slots: int = 1,
) -> PlacementProblem:
    """Makes a problem whose links transfer a byte per second.

    Args:
        secs: seconds of each operation on each device; infinite on devices that are not allowed.
        edges: (operation before, operation after, bytes), one tensor each.
        groups: the group of each operation; by default each operation is a group.
        resident_bytes: resident bytes of each operation; 0 by default.
        temp_bytes: temporary bytes of each operation; 0 by default.
        memory_bytes: memory of each device, or one size for all devices.
        latency_secs: latency of all links.
        slots: slots of each device.
    """
    count, num_devices = len(secs), len(secs[0])
    memory = np.broadcast_to(memory_bytes, num_devices).tolist()
    names = [f"device_{number}" for number in range(num_devices)]
    return PlacementProblem(
        devices=tuple(
            ProblemDevice(name, "CPU" if name == names[0] else "GPU", size, slots)
            for name, size in zip(names, memory, strict=True)
        ),
        links=tuple(
            Link(source, destination, latency_secs, 1.0)
            for source, destination in itertools.permutations(names, 2)
        ),
        operation_names=tuple(f"operation_{number}" for number in range(count)),
        compute_secs=np.array(secs, np.float64),
        resident_bytes=np.array([0] * count if resident_bytes is None else resident_bytes),
        temp_bytes=np.array([0] * count if temp_bytes is None else temp_bytes),
        groups=np.arange(count) if groups is None else np.array(groups),
        tensor_producers=np.array([edge[0] for edge in edges], np.int64),
        tensor_bytes=np.array([edge[2] for edge in edges], np.int64),
        consumer_start=np.arange(len(edges) + 1),
        consumers=np.array([edge[1] for edge in edges], np.int64),
        control_edges=np.zeros([0, 2], np.int64),
    )


def build_group_problem(groups: GroupGraph, legal: np.ndarray) -> PlacementProblem:
    """Makes a problem with one operation of one second for each group of an acyclic graph."""
    return build_task_problem(
        np.where(legal, 1.0, np.inf).tolist(), [(*edge, 1) for edge in groups.edges.tolist()]
    )
