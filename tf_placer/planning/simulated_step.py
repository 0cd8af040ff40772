"""One simulated step of a placement, in detail."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_passes.restrictions import (
    ANY_GPU,
    check_pins,
    match_names,
    resolve_restrictions,
    suggest_names,
)
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.one_device import place_on_one
from tf_placer.report.step_table import step_table
from tf_placer.simulation.lower_bounds import LowerBounds, lower_bounds
from tf_placer.simulation.simulator import StepTrace
from tf_placer.simulation.step_report import step_report
from tf_placer.text.shown_table import ShownTable
from tf_placer.text.units import format_step

__all__ = ["SimulatedStep", "check_assignment", "simulate"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SimulatedStep(ShownTable):
    """A simulated step.

    Attributes:
        failure: the reason why the placement cannot run; None if it can.
        trace: the step in detail; None if an operation is on an illegal device.
        bounds: lower bounds of the step of any placement.
    """

    failure: Failure | None
    trace: StepTrace | None
    bounds: LowerBounds

    def __repr__(self) -> str:
        step = "not simulated" if self.step_secs is None else format_step(self.step_secs)
        reason = "" if self.failure is None else f", cannot run: {self.failure.message}"
        return f"<SimulatedStep: {step}{reason}>"

    @property
    def step_secs(self) -> float | None:
        """The simulated step time in seconds; None if an operation is on an illegal device."""
        return None if self.trace is None else self.trace.step_secs

    @property
    def peak_bytes(self) -> tuple[int, ...] | None:
        """The peak memory of each device; None if an operation is on an illegal device."""
        if self.trace is None:
            return None
        return tuple(device.peak_bytes for device in step_report(self.trace).devices)

    @property
    def feasible(self) -> bool:
        """Returns whether the placement can run, as `PlanResult.feasible`."""
        return self.failure is None

    def table(self) -> str:
        """Formats the step as a table, without a final newline."""
        if self.trace is None:
            return f"not simulated: {self.failure.message if self.failure else ''}"
        return step_table(step_report(self.trace), self.bounds, self.trace.problem)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form, as `simulate --output` writes it."""
        value: dict[str, Any] = {
            "step_secs": None,
            "feasible": self.feasible,
            "reason": None if self.failure is None else self.failure.message,
            "peak_bytes": None,
            "busy_secs": None,
            "lower_bound_secs": self.bounds.step_secs,
            # Without a trace these entries stay None.
            **dict.fromkeys(("fits", "devices", "links", "critical_path")),
        }
        if self.trace is not None:
            step = step_report(self.trace)
            value["peak_bytes"] = [device.peak_bytes for device in step.devices]
            value["busy_secs"] = [device.busy_secs for device in step.devices]
            value |= step.to_json()
        return value


def simulate(
    problem: PlacementProblem | str | os.PathLike[str],
    assignment: Sequence[int] | np.ndarray | Mapping[str, str] | None = None,
) -> SimulatedStep:
    """Simulates one step of a placement.

    Args:
        problem: the placement problem, or its file.
        assignment: a device index for each group, [num_groups]; or devices by patterns of names of
            operations, as pins are, of which the last that matches counts. What none matches, or
            may not be there, is on the first GPU, as far as that may be; by default everything.

    Raises:
        GraphError: a device by names is not that of the problem.
        OSError, ValueError: the file cannot be read, there are not as many indices as groups, no
            such device, or no operation of such a name.

    Example:
        >>> print(tf_placer.simulate(problem, {"*image_*": "GPU:0", "*text_*": "GPU:1"}))
    """
    if not isinstance(problem, PlacementProblem):
        problem = read_problem(os.fspath(problem))
    placement = check_assignment(problem, {} if assignment is None else assignment)
    environment = SimulatedEnvironment(problem, threads=1)
    [measurement] = environment.measure(placement[None])
    failure, trace = measurement.failure, None
    if failure is None or failure.kind is not FailureKind.INVALID_PLACEMENT:
        trace = environment.simulator.trace(placement)
    return SimulatedStep(failure, trace, lower_bounds(problem))


def check_assignment(
    problem: PlacementProblem, assignment: Sequence[int] | np.ndarray | Mapping[str, str]
) -> np.ndarray:
    """Converts an assignment, as `simulate` takes it, into an array, int32 [num_groups].

    Raises:
        GraphError, ValueError: see `simulate`.
    """
    if isinstance(assignment, Mapping):
        return _assign_by_names(problem, assignment)
    placement = np.asarray(assignment)
    if placement.shape != (problem.num_groups,) or placement.dtype.kind not in "iu":
        raise ValueError(
            f"an assignment is a device index for each of {problem.num_groups} groups, such as "
            "`PlanResult.assignment`, or a device by patterns of names, such as {'*text_*': "
            f"'GPU:1'}}, not {_describe(assignment, placement)}"
        )
    if placement.size and not 0 <= placement.min() <= placement.max() < problem.num_devices:
        raise ValueError(
            f"device indices are from 0 to {problem.num_devices - 1}, unlike {placement.min()} to "
            f"{placement.max()}"
        )
    return placement.astype(np.int32)


def _assign_by_names(problem: PlacementProblem, devices: Mapping[str, str]) -> np.ndarray:
    """Places groups by the names of their operations."""
    names = [device.name for device in problem.devices]
    resolved = resolve_restrictions(check_pins(devices), (), names)
    legal, placement = legal_devices(problem), place_on_one(problem)[0]
    group_of = dict(zip(problem.operation_names, problem.groups.tolist(), strict=True))
    for pattern, device in ({} if resolved is None else resolved.pin).items():
        if device == ANY_GPU:
            raise ValueError(f"{pattern!r} is on several GPUs: name one, as a placement does")
        matched = match_names(pattern, problem.operation_names)
        if not matched:
            near = ", ".join(suggest_names(pattern, problem.operation_names))
            raise ValueError(f"no operation is called {pattern!r}: did you mean {near}?")
        groups = np.unique([group_of[name] for name in matched])
        index = names.index(device)
        placement[groups[legal[groups, index]]] = index
    return placement


def _describe(given: object, array: np.ndarray) -> str:
    if array.dtype == object:
        return f"one of type {type(given).__name__}"
    return f"an array of shape {array.shape} and type {array.dtype}"
