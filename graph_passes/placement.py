"""Placements of operations on devices, and their files."""

from __future__ import annotations

import collections
import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_passes.devices import device_type_of, home_device, is_device_name
from graph_passes.errors import GraphError
from graph_passes.util.atomic_write import write_atomically
from graph_passes.util.json_records import check_format, read_record
from graph_passes.util.json_text import format_value, parse_json
from graph_passes.util.path_validation import check_path

# Planning writes placements without TensorFlow.
if TYPE_CHECKING:
    from graph_passes.colocation import ColocationGroups
    from graph_passes.grouping.grouping import Grouping
    from graph_passes.op_graph import OpGraph

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


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """Devices for the operations of one graph.

    Attributes:
        graph_fingerprint: the fingerprint of the graph (see `graph_fingerprint`); empty if it is
            unknown, as for a plan, which names the operations of a step only.
        devices: the full names of all devices of the machine.
        assignment: the device of each operation whose device field is to be written.
        measurement: measurements of the placement, in any form that JSON can hold.
        provenance: the origin of the placement: placer, seed, versions and the like.

    Raises:
        GraphError: the assignment uses a device that is not listed.
    """

    graph_fingerprint: str
    devices: tuple[str, ...]
    assignment: Mapping[str, str]
    measurement: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Checks that the assignment uses only devices that are listed.

        Raises:
            GraphError: it uses another one.
        """
        known = set(self.devices)
        for name, device in self.assignment.items():
            if device not in known:
                raise GraphError(
                    f"it puts {format_value(name)} on {format_value(device)}, which it does not "
                    "list"
                )

    def __repr__(self) -> str:
        counts = collections.Counter(self.assignment.values())
        per_device = [counts[device] for device in self.devices]
        return f"<Placement of {len(self.assignment):,} operations, per device {per_device}>"

    def to_json(self) -> str:
        """Formats the placement as the text of a placement file."""
        return json.dumps(self.to_values(), indent=1) + "\n"

    def to_values(self) -> dict[str, Any]:
        """Makes the values of a placement file."""
        return {"format": _FORMAT, **dataclasses.asdict(self)}

    @property
    def is_planned(self) -> bool:
        """True if the placement was planned by simulation, from the problem of a graph."""
        return not self.graph_fingerprint

    @classmethod
    def from_json(cls, text: str) -> Placement:
        """Reads the text of a placement file, or of a result of `search` on a problem.

        Raises:
            GraphError: the text is no placement, or an operation's device is not listed.
        """
        try:
            value = parse_json(text)
            if isinstance(value, dict) and isinstance(value.get("assignment"), list):
                value = _find_planned(value)
            check_format(value, _FORMAT)
            placement = read_record(cls, value)
            _check_devices(placement)
        except GraphError:
            raise
        except ValueError as error:
            raise GraphError(f"it is not a placement: {error}") from error
        return placement


def _find_planned(result: dict[str, Any]) -> Any:
    """Finds the placement in a result of `search`.

    Raises:
        GraphError: the result has none.
    """
    if result.get("placement") is None:
        raise GraphError(
            "it has a device for each group of a problem, but none for operations of a graph: "
            "`search` writes both for a problem that `profile` has made of a graph"
        )
    return result["placement"]


def _check_devices(placement: Placement) -> None:
    """Checks that devices are valid and listed once.

    Raises:
        ValueError: a device is invalid or repeated.
    """
    for index, device in enumerate(placement.devices):
        if not is_device_name(device):
            raise ValueError(
                f"devices[{index}] is {format_value(device)}: it must be the name of a device, "
                "such as '/job:localhost/replica:0/task:0/device:GPU:0'"
            )
        if device in placement.devices[:index]:
            raise ValueError(
                f"devices[{index}] is {format_value(device)}, which stands there before"
            )


def read_placement(path: str | os.PathLike[str]) -> Placement:
    """Reads a placement file.

    Raises:
        GraphError: the file is not a placement; the message names it.
        OSError: the file cannot be read; the message names it.
        ValueError: the path is invalid.
    """
    check_path(path, "a placement", "file")
    try:
        with open(path, encoding="utf-8") as file:
            return Placement.from_json(file.read())
    except UnicodeDecodeError as error:
        raise GraphError(
            f"cannot read the placement {os.fspath(path)!r}: it is not text in UTF-8"
        ) from error
    except GraphError as error:
        raise GraphError(f"cannot read the placement {os.fspath(path)!r}: {error}") from error
    except OSError as error:
        reason = f"cannot read the placement {os.fspath(path)!r}: {error.strerror}"
        raise type(error)(reason) from error


def write_placement(placement: Placement, path: str | os.PathLike[str]) -> None:
    """Writes a placement file atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, placement.to_json().encode())


def operation_groups(
    graph: OpGraph, colocation: ColocationGroups, grouping: Grouping
) -> np.ndarray:
    """Finds the group whose device each operation gets.

    Beside the operations of the step, the rest of their colocation groups (for example,
    initializers of variables) has a group, and so have colocation groups outside the step which
    only one group reads: an initial value is computed on the device of its variable.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: the groups that are placed.

    Returns:
        int32 [num_operations], -1 for operations whose device field is not written.
    """
    group_of_colocated = _follow_readers(
        graph, colocation, grouping.group, grouping.legal_types(colocation)
    )
    group_of_colocated[np.isin(group_of_colocated, grouping.list_pinned())] = -1
    return group_of_colocated[colocation.group]


def _follow_readers(
    graph: OpGraph, colocation: ColocationGroups, chosen: np.ndarray, types: np.ndarray
) -> np.ndarray:
    """Places colocation groups without a place where their readers are, if that is one place.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        chosen: int32 [num_colocation_groups], the place of each, -1 for none.
        types: int64 [num_places], bits of the device types that a place may be, in sorted order.

    Returns:
        int32 [num_colocation_groups], the places with those that were added.
    """
    free = ~colocation.pinned
    colocated_types = np.zeros(colocation.num_groups, np.int64)
    for bit, device_type in enumerate(sorted(colocation.legal)):
        colocated_types |= colocation.legal[device_type].astype(np.int64) << bit
    chosen = chosen.copy()
    colocated = colocation.group
    producer, consumer = colocated[graph.edge_producer], colocated[graph.edge_consumer]
    # Only edges from colocation groups without a place matter.
    is_relevant = (chosen[producer] < 0) & (producer != consumer) & free[producer] & free[consumer]
    readers: dict[int, set[int]] = {}
    for p, c in zip(producer[is_relevant].tolist(), consumer[is_relevant].tolist(), strict=True):
        readers.setdefault(p, set()).add(c)
    # Colocation groups are numbered in topological order of their first operation, so the reversed
    # order visits most readers before the group that they read. Groups on a cycle, which has no
    # such order, may stay without a place.
    for h in sorted(readers, reverse=True):
        places = {int(chosen[r]) for r in readers[h]}
        if len(places) == 1:
            (place,) = places
            if place >= 0 and types[place] & ~colocated_types[h] == 0:
                chosen[h] = place
    return chosen


@dataclasses.dataclass(frozen=True)
class FittedPlacement:
    """The result of fitting a placement to a graph.

    Attributes:
        assignment: the device of each operation whose device field is to be written.
        missing: operations of the placement that the graph does not have.
        unplaced: needed operations that are not pinned and get no device.
        refused: per colocation group (by its first operation) the reason why it cannot be placed.
    """

    assignment: Mapping[str, str]
    missing: tuple[str, ...]
    unplaced: tuple[str, ...]
    refused: Mapping[str, str]


def fit_placement(
    graph: OpGraph, colocation: ColocationGroups, placement: Placement
) -> FittedPlacement:
    """Fits a placement to a graph that may differ from the graph it was made for.

    Every colocation group gets one legal device or none: operations that the placement does not
    name follow the rest of their group, and a group that the placement splits gets no device.
    Needed operations take precedence: the names of others may have changed their meaning, and a
    split group of only such operations is ignored. A plan does not name initializers: what only
    one device reads goes there, such as the initial value of a variable.

    Args:
        graph: the graph, with the operations of the step marked as needed, if they are known.
        colocation: its colocation groups.
        placement: the placement.

    Returns:
        The devices to write, and the entries that do not match.
    """
    by_step: dict[int, set[str]] = {}
    by_others: dict[int, set[str]] = {}
    for name, device in placement.assignment.items():
        i = graph.index.get(name)
        if i is not None:
            devices_of = by_step if graph.needed[i] else by_others
            devices_of.setdefault(int(colocation.group[i]), set()).add(device)
    by_others = {group: devices for group, devices in by_others.items() if len(devices) == 1}
    requested = by_others | by_step
    refused: dict[str, str] = {}
    device_of: dict[int, str] = {}
    for colocated, devices in requested.items():
        name = colocation.first_names[colocated]
        device = min(devices)
        runs = colocation.legal.get(device_type_of(device))
        if colocation.pinned[colocated]:
            home = home_device(colocation.devices[colocated], placement.devices)
            if placement.devices[home] not in devices:
                refused[name] = "it is pinned, so its device is not changed"
        elif len(devices) > 1:
            refused[name] = f"it must be on one device, not on {' and '.join(sorted(devices))}"
        elif runs is None or not runs[colocated]:
            refused[name] = f"something in it has no kernel for {device}"
        else:
            device_of[colocated] = device
    if placement.is_planned:
        followers = _find_followers(graph, colocation, device_of, placement.devices)
        device_of |= {group: d for group, d in followers.items() if group not in requested}
    assignment, unplaced = {}, []
    for i, colocated in enumerate(colocation.group.tolist()):
        if colocated in device_of:
            assignment[graph.names[i]] = device_of[colocated]
        elif graph.needed[i] and not colocation.pinned[colocated]:
            unplaced.append(graph.names[i])
    missing = tuple(name for name in placement.assignment if name not in graph.index)
    return FittedPlacement(assignment, missing, tuple(unplaced), refused)


def _find_followers(
    graph: OpGraph,
    colocation: ColocationGroups,
    device_of: Mapping[int, str],
    devices: Sequence[str],
) -> dict[int, str]:
    """Finds the device of each colocation group that only one device reads."""
    chosen = np.full(colocation.num_groups, -1, np.int32)
    for colocated, device in device_of.items():
        chosen[colocated] = devices.index(device)
    kinds = sorted(colocation.legal)
    types = np.array([[kind == device_type_of(each) for kind in kinds] for each in devices])
    chosen = _follow_readers(graph, colocation, chosen, types @ (1 << np.arange(len(kinds))))
    return {group: devices[chosen[group]] for group in np.flatnonzero(chosen >= 0).tolist()}


def assignment_of(
    names: Sequence[str], groups: np.ndarray, devices: Sequence[str], row: np.ndarray
) -> dict[str, str]:
    """Converts a placement of groups into devices of operations.

    Args:
        names: the name of every operation.
        groups: int32 [num_operations], from `operation_groups`.
        devices: the full names of the devices.
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
