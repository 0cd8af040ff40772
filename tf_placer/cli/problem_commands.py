"""What the command `simulate` does on problems; free of TensorFlow."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.environments.environment import FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.files import check_output, read_json, write_json
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.chrome_trace import chrome_trace
from tf_placer.report.step_table import step_table
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.step_report import step_report

__all__ = ["read_assignment", "report_step", "simulate_file"]


def simulate_file(
    problem_path: str, assignment_path: str, *, output: str | None, trace: str | None
) -> None:
    """Simulates one placement of a problem; prints and writes what happens in its step.

    Args:
        problem_path: the problem.
        assignment_path: JSON file with a list `assignment`, a device index per group.
        output: where the report goes, or None.
        trace: where the Chrome trace goes, or None.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the problem or the assignment is wrong.
    """
    for path in filter(None, (output, trace)):
        check_output(path, problem_path, assignment_path)
    problem = read_problem(problem_path)
    placement = read_assignment(assignment_path, problem, problem_path)
    report_step(problem, placement, output=output, trace=trace)


def read_assignment(path: str, problem: PlacementProblem, problem_path: str) -> np.ndarray:
    """Reads the device index of every group.

    Args:
        path: JSON file with a list `assignment`, whatever else it has.
        problem: what is placed.
        problem_path: its file, for messages.

    Returns:
        int32 [num_groups].

    Raises:
        OSError: the file cannot be read.
        ValueError: it has no such list, or the list does not fit the problem.
    """
    value = read_json(path)
    assignment = value.get("assignment") if isinstance(value, dict) else None
    if not isinstance(assignment, list):
        raise ValueError(f"{path} has no list 'assignment'")
    if len(assignment) != problem.num_groups:
        raise ValueError(
            f"{path}: 'assignment' has {len(assignment)} entries, but {problem_path} has "
            f"{problem.num_groups} groups"
        )
    for group, device in enumerate(assignment):
        if not isinstance(device, int) or isinstance(device, bool):
            raise ValueError(f"{path}: assignment[{group}] is {device!r}, not a device index")
        if not 0 <= device < problem.num_devices:
            raise ValueError(
                f"{path}: assignment[{group}] is {device}, but the devices of {problem_path} are "
                f"0 to {problem.num_devices - 1}"
            )
    return np.array(assignment, np.int32)


def report_step(
    problem: PlacementProblem, placement: np.ndarray, *, output: str | None, trace: str | None
) -> None:
    """Simulates a placement; prints and writes what happens in its step.

    Args:
        problem: what is placed.
        placement: int32 [num_groups], a device index per group.
        output: where the report goes, or None.
        trace: where the Chrome trace goes, or None. A placement that has an operation where it
            may not go has no trace.

    Raises:
        OSError: a file cannot be written.
    """
    for path, other in ((output, trace), (trace, None)):
        if path is not None:
            check_output(path, other)
    environment = SimulatedEnvironment(problem, threads=1)
    [measurement] = environment.measure(placement[None])
    bounds = lower_bounds(problem)
    failure = measurement.failure
    reason = None if failure is None else failure.message
    value: dict[str, Any] = {
        "step_secs": None,
        "feasible": failure is None,
        "reason": reason,
        "peak_bytes": None,
        "busy_secs": None,
        "lower_bound_secs": bounds.step_secs,
    }
    lines = []
    if failure is not None and failure.kind is FailureKind.INVALID_PLACEMENT:
        # There is no step to report on.
        lines.append(f"not simulated: {reason}")
    else:
        traced = environment.simulator.trace(placement)
        step = step_report(traced)
        value["peak_bytes"] = [device.peak_bytes for device in step.devices]
        value["busy_secs"] = [device.busy_secs for device in step.devices]
        value |= step.to_json()
        lines.append(step_table(step, bounds))
        if trace is not None:
            write_json(trace, chrome_trace(traced))
            lines.append(f"trace: {trace}")
    if output is not None:
        write_json(output, value)
        lines.append(f"report: {output}")
    print("\n".join(lines))
