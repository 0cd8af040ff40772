"""Where the operations of a graph are as it came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.devices import home_device
from graph_passes.pipeline import GroupedGraph
from tf_placer.machines.machine import Device

__all__ = ["colocated_devices", "given_assignment"]


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


def given_assignment(grouped: GroupedGraph, devices: Sequence[Device]) -> list[int] | None:
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
