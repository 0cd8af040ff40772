"""What the commands do that work on problems; free of TensorFlow, unless a placer needs it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from tf_placer.environments.environment import FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.errors import require_tensorflow
from tf_placer.json_file import check_output, read_json, write_json
from tf_placer.placers import make_placer
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import group_graph, legal_devices
from tf_placer.report.chrome_trace import chrome_trace
from tf_placer.report.step_table import step_table
from tf_placer.report.table import table
from tf_placer.report.units import format_bytes, format_duration, format_step
from tf_placer.simulated_search import SearchOutcome, search_problem
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.step_report import step_report

__all__ = ["read_assignment", "report_step", "search_file", "simulate_file"]

_SAVE_SECS = 1.0
_PROGRESS_SECS = 0.2


def search_file(
    problem_path: str,
    output: str,
    *,
    placer: str,
    placer_options: Mapping[str, str],
    max_trials: int,
    max_secs: float,
    seed: int,
) -> None:
    """Searches for the fastest placement of a problem, writes it and prints what it is like.

    The best so far is written whenever there is a better one, at most once a second.

    Args:
        problem_path: the problem.
        output: where the result goes.
        placer: name of the placer.
        placer_options: its settings that are not the defaults.
        max_trials: placements to simulate at most.
        max_secs: seconds of searching.
        seed: of everything random.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        OSError: a file cannot be read or written.
        ValueError: the problem or a setting is wrong.
    """
    if seed < 0:
        raise ValueError(f"seed must not be negative, but is {seed}")
    problem = read_problem(problem_path)
    proposer = _placer(problem, placer, placer_options, seed)
    check_output(output)
    file = _ResultFile(output)
    line = _ProgressLine(sys.stderr, max_trials)

    def report(outcome: SearchOutcome, eta_secs: float) -> None:
        file.update(outcome)
        line.show(outcome, eta_secs)

    try:
        outcome = search_problem(
            problem, proposer, max_trials=max_trials, max_secs=max_secs, report=report
        )
    finally:
        line.clear()
    file.write(outcome)
    print(_search_table(problem, outcome))
    print("result:", output)


def _placer(problem: PlacementProblem, name: str, options: Mapping[str, str], seed: int) -> Placer:
    groups, legal = group_graph(problem), legal_devices(problem)
    try:
        return make_placer(name, groups, legal, seed=seed, options=options)
    except ImportError:
        require_tensorflow()
        raise


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
    for path in (output, trace):
        if path is not None:
            check_output(path)
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


class _ResultFile:
    """The file of the best placement so far."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._saved: tuple[int, ...] | None = None
        self._saved_secs = 0.0

    def update(self, outcome: SearchOutcome) -> None:
        """Writes the outcome if its placement is new, and the last one is not as new."""
        now_secs = time.monotonic()
        is_due = self._saved is None or now_secs - self._saved_secs >= _SAVE_SECS
        if is_due and outcome.assignment != self._saved:
            self.write(outcome)
            self._saved, self._saved_secs = outcome.assignment, now_secs

    def write(self, outcome: SearchOutcome) -> None:
        """Writes the outcome."""
        write_json(self._path, outcome.to_json())


class _ProgressLine:
    """One line on a terminal that says where a search stands; nothing where there is none."""

    def __init__(self, stream: TextIO, max_trials: int) -> None:
        self._stream = stream
        self._max_trials = max_trials
        self._shown_secs = 0.0
        self._is_terminal = stream.isatty()

    def show(self, outcome: SearchOutcome, eta_secs: float) -> None:
        """Replaces the line, a few times a second."""
        now_secs = time.monotonic()
        if self._is_terminal and now_secs - self._shown_secs >= _PROGRESS_SECS:
            self._shown_secs = now_secs
            self._write(
                f"{outcome.trials:,} trials | best {_step(outcome)} | "
                f"elapsed {format_duration(outcome.elapsed_secs)} | ETA {format_duration(eta_secs)}"
            )

    def clear(self) -> None:
        """Takes the line away."""
        if self._is_terminal:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


def _step(outcome: SearchOutcome) -> str:
    if outcome.step_secs is None:
        return "none that may run"
    return format_step(outcome.step_secs) + ("" if outcome.feasible else " (does not fit)")


def _search_table(problem: PlacementProblem, outcome: SearchOutcome) -> str:
    """The outcome of a search for people."""
    counts = np.bincount(outcome.assignment, minlength=problem.num_devices).tolist()
    rows = [
        [device.name, count, format_bytes(peak), format_bytes(device.memory_bytes)]
        for device, count, peak in zip(problem.devices, counts, outcome.peak_bytes, strict=True)
    ]
    bound_secs = outcome.lower_bound_secs
    lines = [
        table(["device", "groups", "peak memory", "memory"], rows, "lrrr"),
        "",
        f"step:         {_step(outcome)}",
        f"lower bound:  {format_step(bound_secs)}",
        f"trials:       {outcome.trials:,} of {outcome.placer} in "
        f"{format_duration(outcome.elapsed_secs)}"
        + (", interrupted" if outcome.interrupted else ""),
    ]
    return "\n".join(lines)
