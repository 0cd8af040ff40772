"""Where the operations of a graph are as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging

from graph_passes.colocation import ColocationGroups
from graph_passes.devices import home_device
from graph_passes.errors import GraphError
from graph_passes.grouping.grouping import Grouping
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import GroupedGraph
from graph_passes.placement import Placement
from tf_placer.machines.machine import Device
from tf_placer.problem.coarse_groups import coarse_assignment

__all__ = [
    "colocated_devices",
    "find_original_assignment",
    "find_requested_devices",
    "nearest_assignment",
]


def colocated_devices(
    colocation: ColocationGroups,
    devices: Sequence[Device],
    asked: Mapping[int, str] | None = None,
) -> np.ndarray:
    """Finds the device of each colocation group.

    What has no device is where TensorFlow would put it: on the first GPU if it has a kernel for it,
    else on the first CPU.

    Args:
        colocation: the colocation groups, with the devices that the graph came with.
        devices: those that there are.
        asked: by colocation group, full names of devices that count instead.

    Returns:
        int64 [num_colocation_groups], indices into `devices`.
    """
    names = [device.name for device in devices]
    legal = np.stack([colocation.legal[device.type] for device in devices], axis=1)
    gpus = np.array([device.type == "GPU" for device in devices])
    default = np.where((legal & gpus).any(axis=1), (legal & gpus).argmax(axis=1), 0)
    wanted = [(asked or {}).get(i, device) for i, device in enumerate(colocation.devices)]
    return np.array(
        [home_device(name, names) if name else default[i] for i, name in enumerate(wanted)],
        np.int64,
    )


def find_requested_devices(
    graph: OpGraph,
    colocation: ColocationGroups,
    placement: Placement,
    devices: Sequence[Device],
) -> dict[int, str]:
    """Finds the device that a placement has for each colocation group; warns of what is not there.

    Returns:
        Full names of devices by colocation group, of those that the placement names.

    Raises:
        GraphError: the placement names a device that there is not.
    """
    names = [device.name for device in devices]
    asked = {}
    for name, device in placement.assignment.items():
        if device not in names:
            raise GraphError(f"the placement has {name!r} on {device}, which is not there")
        if name in graph.index:
            asked[int(colocation.group[graph.index[name]])] = device
    missing = [name for name in placement.assignment if name not in graph.index]
    if missing:
        logging.warning(
            "the graph lacks %d operations of the placement: %r ...", len(missing), missing[0]
        )
    return asked


def nearest_assignment(
    grouping: Grouping,
    colocation: ColocationGroups,
    devices: Sequence[Device],
    asked: Mapping[int, str] | None = None,
) -> np.ndarray:
    """Finds the device that most of each group is on, the first of equals.

    Args:
        grouping: the groups.
        colocation: the colocation groups in them, with the devices that the graph came with.
        devices: those that there are.
        asked: see `colocated_devices`.

    Returns:
        int32 [num_groups], indices into `devices`.
    """
    chosen = colocated_devices(colocation, devices, asked)
    placed = grouping.group >= 0
    return coarse_assignment(
        chosen[placed], grouping.group[placed], grouping.num_groups, len(devices)
    )


def find_original_assignment(grouped: GroupedGraph, devices: Sequence[Device]) -> list[int] | None:
    """Finds the device of each group in the graph as it came.

    Returns:
        A device index per group; None if a group is on several devices there.
    """
    of_colocated = colocated_devices(grouped.colocation, devices)
    groups = grouped.grouping.group
    placed = groups >= 0
    assignment = np.zeros(grouped.grouping.num_groups, np.int64)
    assignment[groups[placed]] = of_colocated[placed]
    if (assignment[groups[placed]] != of_colocated[placed]).any():
        return None
    return [int(device) for device in assignment]
