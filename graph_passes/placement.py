"""Placements: which operation goes to which device, and their file."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.devices import device_type_of, is_device_name
from graph_passes.errors import GraphError
from graph_passes.grouping.grouping import PINNED, Grouping
from graph_passes.op_graph import OpGraph
from graph_passes.util.json_records import check_format, read_record
from graph_passes.util.json_text import parse_json, shown
from graph_passes.util.paths import check_path
from graph_passes.util.whole_file import write_whole

__all__ = [
    "FittedPlacement",
    "Placement",
    "assignment_of",
    "fit_placement",
    "operation_groups",
    "read_placement",
    "write_placement",
]

_FORMAT = 1


@dataclasses.dataclass(frozen=True, eq=False)
class Placement:
    """Devices for the operations of one graph.

    Attributes:
        graph_fingerprint: of the graph it was made for (see `graph_fingerprint`).
        devices: full names of all devices of the machine it was made for.
        assignment: the device of each operation whose device field is to be written.
        measurement: what was measured of it; anything that JSON can hold.
        provenance: how it was found: placer, seed, versions and the like.
    """

    graph_fingerprint: str
    devices: tuple[str, ...]
    assignment: Mapping[str, str]
    measurement: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Formats the placement as the text of a placement file."""
        return json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Placement:
        """Reads the text of a placement file.

        Raises:
            GraphError: it is not one, or an operation's device is not among the devices.
        """
        try:
            value = parse_json(text)
            check_format(value, _FORMAT)
            placement = read_record(cls, value)
            _check_devices(placement)
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"it is not a placement: {error}") from error
        return placement


def _check_devices(placement: Placement) -> None:
    """Makes sure that a placement names devices as TensorFlow does, each of them once.

    Raises:
        ValueError: it does not.
    """
    for index, device in enumerate(placement.devices):
        if not is_device_name(device):
            raise ValueError(
                f"devices[{index}] is {shown(device)}: it must be the name of a device, such as "
                "'/job:localhost/replica:0/task:0/device:GPU:0'"
            )
        if device in placement.devices[:index]:
            raise ValueError(f"devices[{index}] is {shown(device)}, which stands there before")
    known = set(placement.devices)
    for name, device in placement.assignment.items():
        if device not in known:
            raise GraphError(f"it puts {shown(name)} on {shown(device)}, which it does not list")


def read_placement(path: str | os.PathLike[str]) -> Placement:
    """Reads a placement file.

    Raises:
        GraphError: the file cannot be read or is not a placement; the message names it.
        ValueError: this is no path.
    """
    check_path(path, "a placement", "file")
    try:
        with open(path, encoding="utf-8") as file:
            return Placement.from_json(file.read())
    except UnicodeDecodeError as error:
        raise GraphError(
            f"cannot read the placement {os.fspath(path)!r}: it is not text in UTF-8"
        ) from error
    except (OSError, GraphError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise GraphError(f"cannot read the placement {os.fspath(path)!r}: {reason}") from error


def write_placement(placement: Placement, path: str | os.PathLike[str]) -> None:
    """Writes a placement file, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    write_whole(path, placement.to_json().encode())


def operation_groups(
    graph: OpGraph, colocation: ColocationGroups, grouping: Grouping
) -> np.ndarray:
    """Finds the group whose device each operation gets.

    Beside the operations of the step these are the rest of their colocation groups (initializers
    of variables, say) and, outside the step, what only one group reads: an initial value is made
    where its variable lives.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: the groups that are placed.

    Returns:
        int32 [num_operations], -1 for the operations whose device field stays as it is.
    """
    free = ~colocation.pinned
    types = grouping.legal_types(colocation)
    colocated_types = np.zeros(colocation.num_groups, np.int64)
    for bit, device_type in enumerate(sorted(colocation.legal)):
        colocated_types |= colocation.legal[device_type].astype(np.int64) << bit
    of_colocated = grouping.group.copy()
    colocated = colocation.group
    producer, consumer = colocated[graph.edge_producer], colocated[graph.edge_consumer]
    # Of what the grouping leaves open.
    counts = (of_colocated[producer] < 0) & (producer != consumer) & free[producer] & free[consumer]
    readers: dict[int, set[int]] = {}
    for p, c in zip(producer[counts].tolist(), consumer[counts].tolist(), strict=True):
        readers.setdefault(p, set()).add(c)
    # Groups are numbered in topological order of their first operation, so most readers come
    # before what they read; what a cycle of groups hides from this order stays unplaced.
    for h in sorted(readers, reverse=True):
        groups = {int(of_colocated[r]) for r in readers[h]}
        if len(groups) == 1:
            (group,) = groups
            if group >= 0 and types[group] & ~colocated_types[h] == 0:
                of_colocated[h] = group
    alone = [group for group, kind in enumerate(grouping.kinds) if kind == PINNED]
    of_colocated[np.isin(of_colocated, alone)] = -1
    return of_colocated[colocated]


@dataclasses.dataclass(frozen=True)
class FittedPlacement:
    """What of a placement can be put on a graph.

    Attributes:
        assignment: the device of each operation whose device field is to be written.
        missing: operations of the placement that the graph does not have.
        unplaced: operations that a step needs, and that may be placed, without a device.
        refused: per colocation group (by its first operation) why it cannot be placed as asked.
    """

    assignment: Mapping[str, str]
    missing: tuple[str, ...]
    unplaced: tuple[str, ...]
    refused: Mapping[str, str]


def fit_placement(
    graph: OpGraph, colocation: ColocationGroups, placement: Placement
) -> FittedPlacement:
    """Fits a placement to a graph that may differ from the one it was made for.

    Every colocation group gets one device that it may go to, or none: a member that the placement
    does not name goes with the others, and a group that the placement tears apart stays as it is.
    Where a step is marked, its operations decide: names of others may mean something else now, and
    a group of these that is torn apart is passed over.

    Args:
        graph: the graph, with what the step needs marked, if that is known.
        colocation: its colocation groups.
        placement: the placement.

    Returns:
        What to write, and what did not match.
    """
    by_step: dict[int, set[str]] = {}
    by_others: dict[int, set[str]] = {}
    for name, device in placement.assignment.items():
        i = graph.index.get(name)
        if i is not None:
            asking = by_step if graph.needed[i] else by_others
            asking.setdefault(int(colocation.group[i]), set()).add(device)
    by_others = {group: devices for group, devices in by_others.items() if len(devices) == 1}
    asked = by_others | by_step
    refused: dict[str, str] = {}
    device_of: dict[int, str] = {}
    for colocated, devices in asked.items():
        name = colocation.first_names[colocated]
        device = min(devices)
        runs = colocation.legal.get(device_type_of(device))
        if colocation.pinned[colocated]:
            if colocation.devices[colocated] not in devices:
                refused[name] = "it is left where it is"
        elif len(devices) > 1:
            refused[name] = f"it must be on one device, not on {' and '.join(sorted(devices))}"
        elif runs is None or not runs[colocated]:
            refused[name] = f"something in it has no kernel for {device}"
        else:
            device_of[colocated] = device
    assignment, unplaced = {}, []
    for i, colocated in enumerate(colocation.group.tolist()):
        if colocated in device_of:
            assignment[graph.names[i]] = device_of[colocated]
        elif graph.needed[i] and not colocation.pinned[colocated]:
            unplaced.append(graph.names[i])
    missing = tuple(name for name in placement.assignment if name not in graph.index)
    return FittedPlacement(assignment, missing, tuple(unplaced), refused)


def assignment_of(
    names: Sequence[str], groups: np.ndarray, devices: Sequence[str], row: np.ndarray
) -> dict[str, str]:
    """Finds the devices that a placement of groups means for operations.

    Args:
        names: the name of every operation.
        groups: int32 [num_operations], from `operation_groups`.
        devices: full names of the devices.
        row: int32 [num_groups], a device per group.

    Returns:
        The device of each operation whose device field is to be written.
    """
    chosen = np.asarray(row).tolist()
    return {
        name: devices[chosen[group]]
        for name, group in zip(names, groups.tolist(), strict=True)
        if group >= 0
    }
