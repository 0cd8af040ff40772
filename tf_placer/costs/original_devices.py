"""The devices of operations in the original graph or in a placement of it."""

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
    "find_colocation_devices",
    "find_nearest_assignment",
    "find_original_assignment",
    "find_requested_devices",
]


def find_colocation_devices(
    colocation: ColocationGroups,
    devices: Sequence[Device],
    requested: Mapping[int, str] | None = None,
) -> np.ndarray:
    """Finds the device of each colocation group.

    TensorFlow puts a group without a device on the first GPU if it has a kernel for it, else on the
    first CPU.

    Args:
        colocation: the colocation groups, with their devices in the original graph.
        devices: the devices of the machine.
        requested: by colocation group, full names of devices that override the original ones.

    Returns:
        int64 [num_colocation_groups], indices into `devices`.
    """
    names = [device.name for device in devices]
    legal = np.stack([colocation.legal[device.type] for device in devices], axis=1)
    gpus = np.array([device.type == "GPU" for device in devices])
    default = np.where((legal & gpus).any(axis=1), (legal & gpus).argmax(axis=1), 0)
    wanted = [(requested or {}).get(i, device) for i, device in enumerate(colocation.devices)]
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
    """Finds the device that a placement gives each colocation group.

    Logs a warning if the graph lacks operations of the placement.

    Returns:
        Full device names by colocation group, for the groups that the placement names.

    Raises:
        GraphError: the placement names a device that the machine does not have.
    """
    names = [device.name for device in devices]
    requested = {}
    for name, device in placement.assignment.items():
        if device not in names:
            raise GraphError(f"the placement has {name!r} on {device}, which is not there")
        if name in graph.index:
            requested[int(colocation.group[graph.index[name]])] = device
    missing = [name for name in placement.assignment if name not in graph.index]
    if missing:
        logging.warning(
            "the graph lacks %d operations of the placement: %r ...", len(missing), missing[0]
        )
    return requested


def find_nearest_assignment(
    grouping: Grouping,
    colocation: ColocationGroups,
    devices: Sequence[Device],
    requested: Mapping[int, str] | None = None,
) -> np.ndarray:
    """Finds the device that holds most of each group, the first one in a tie.

    Args:
        grouping: the groups.
        colocation: the colocation groups in them, with their devices in the original graph.
        devices: the devices of the machine.
        requested: see `find_colocation_devices`.

    Returns:
        int32 [num_groups], indices into `devices`.
    """
    chosen = find_colocation_devices(colocation, devices, requested)
    names = [device.name for device in devices]
    for colocated, required in colocation.required.items():
        chosen[colocated] = names.index(required)
    placed = grouping.group >= 0
    return coarse_assignment(
        chosen[placed], grouping.group[placed], grouping.num_groups, len(devices)
    )


def find_original_assignment(grouped: GroupedGraph, devices: Sequence[Device]) -> list[int] | None:
    """Finds the device of each group in the original graph.

    Returns:
        A device index per group; None if the graph has a group on several devices, or on another
        device than the user requires.
    """
    colocation = grouped.colocation
    original = colocation.by_tensorflow
    original_devices = find_colocation_devices(original, devices)[original.group]
    groups = grouped.grouping.expand_to_operations(colocation)
    placed = groups >= 0
    assignment = np.zeros(grouped.grouping.num_groups, np.int64)
    assignment[groups[placed]] = original_devices[placed]
    if (assignment[groups[placed]] != original_devices[placed]).any():
        return None
    for colocated, device in colocation.required.items():
        group = grouped.grouping.group[colocated]
        if group >= 0 and devices[assignment[group]].name != device:
            return None
    return [int(device) for device in assignment]
