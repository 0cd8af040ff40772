"""Files with the device of every group of a problem."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from graph_passes.devices import find_devices, is_device_request
from graph_passes.util.json_records import read_record
from graph_passes.util.json_text import format_value
from tf_placer.files import name_file_in_errors, read_json
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["assign_groups", "read_assignment"]


@dataclasses.dataclass(frozen=True)
class _File:
    assignment: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _PlacementFile:
    assignment: Mapping[str, str]


def read_assignment(
    path: str,
    problem: PlacementProblem,
    problem_path: str,
    say: Callable[[str], None] | None = None,
) -> np.ndarray:
    """Reads the device index of every group.

    Args:
        path: JSON file with a list `assignment`; its other entries are ignored. Or a placement of
            all operations of the problem, such as `PlanResult.save` writes it.
        problem: the problem that the assignment belongs to.
        problem_path: the file of the problem, for messages.
        say: see `assign_groups`.

    Returns:
        int32 [num_groups].

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has no such entry, or it does not fit the problem.
    """
    with name_file_in_errors(path, "a placement of a problem"):
        value = read_json(path)
        if isinstance(value, dict) and isinstance(value.get("assignment"), dict):
            devices = read_record(_PlacementFile, value).assignment
            assignment = assign_groups(problem, devices, say)
        else:
            assignment = read_record(_File, value).assignment
    if len(assignment) != problem.num_groups:
        raise ValueError(
            f"{path}: 'assignment' has {len(assignment)} entries, but {problem_path} has "
            f"{problem.num_groups} groups"
        )
    for group, device in enumerate(assignment):
        if device >= problem.num_devices:
            raise ValueError(
                f"{path}: assignment[{group}] is {device}, but the devices of "
                f"{problem_path} are 0 to {problem.num_devices - 1}"
            )
    return np.array(assignment, np.int32)


def assign_groups(
    problem: PlacementProblem,
    devices: Mapping[str, str],
    say: Callable[[str], None] | None = None,
) -> tuple[int, ...]:
    """Finds the device index of every group from the devices of its operations.

    Args:
        problem: the problem.
        devices: by operation, the full name of a device, or as much of it as only one has, such as
            "GPU:0".
        say: called with a line for users where operations of a group have several devices; the
            group is then where most of them are. None to raise an error.

    Raises:
        ValueError: an operation has no device, one that the problem lacks, or not that of its
            group.
    """
    names = [device.name for device in problem.devices]
    indices = {name: names.index(name) for name in names}
    for short in set(devices.values()) - indices.keys():
        request = short if short.startswith("/") else f"/{short}"
        found = find_devices(request, names) if is_device_request(request) else []
        if len(found) == 1:
            indices[short] = names.index(found[0])
    of_groups: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for name, group in zip(problem.operation_names, problem.groups.tolist(), strict=True):
        device = devices.get(name)
        if device is None:
            raise ValueError(f"it has no device for {format_value(name)}")
        if device not in indices:
            raise ValueError(
                f"it puts {format_value(name)} on {format_value(device)}, which the problem lacks"
            )
        of_groups[group][indices[device]] += 1
        if say is None and len(of_groups[group]) > 1:
            raise ValueError(
                f"it puts {format_value(name)} on {format_value(device)}, but other operations of "
                f"its group {group} elsewhere"
            )
    mixed = sum(len(counts) > 1 for counts in of_groups.values())
    if say is not None and mixed:
        say(
            f"{mixed:,} of {problem.num_groups:,} groups, whose operations go together, have "
            "several devices in the placement: each starts where most of its operations are"
        )
    # A group without operations may go anywhere.
    chosen = {group: counts.most_common(1)[0][0] for group, counts in of_groups.items()}
    return tuple(chosen.get(group, 0) for group in range(problem.num_groups))
