"""Files with the device of every group of a problem."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.util.json_records import read_record
from tf_placer.files import name_file_in_errors, read_json
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["read_assignment"]


@dataclasses.dataclass(frozen=True)
class _File:
    assignment: tuple[int, ...]


def read_assignment(path: str, problem: PlacementProblem, problem_path: str) -> np.ndarray:
    """Reads the device index of every group.

    Args:
        path: JSON file with a list `assignment`; its other entries are ignored.
        problem: the problem that the assignment belongs to.
        problem_path: the file of the problem, for messages.

    Returns:
        int32 [num_groups].

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has no such list, or the list does not fit the problem.
    """
    with name_file_in_errors(path, "a placement of a problem"):
        assignment = read_record(_File, read_json(path)).assignment
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
