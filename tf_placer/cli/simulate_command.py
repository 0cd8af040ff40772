"""The command `simulate`: simulates one step and reports on it; on a problem free of TensorFlow."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import numpy as np

from tf_placer.cli.answer import add_json, answer, check_standard_output
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    PROBLEM_HELP,
    add_clear_devices,
    add_step,
)
from tf_placer.cli.graph_costs import cost_graph_file
from tf_placer.environments.environment import FailureKind
from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.files import check_output, write_json
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.report.chrome_trace import chrome_trace
from tf_placer.report.step_table import step_table
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import StepTrace
from tf_placer.simulation.step_report import step_report

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Simulates one step and reports on it: busy, idle and copying time of each "
    "device, what crosses the links, the critical path, peak memory and what holds it, and "
    "how far from the lower bound the step is. What is placed is a problem file or a graph on "
    "a machine. A placement that does not fit is reported as such: feasible false, and the "
    "reason."
)
_STEP = ("fetches", "feeds", "initializers", "restore_from", "signature")
# A problem, and int32 [num_groups], a device index for each of its groups.
_Placed = tuple[PlacementProblem, np.ndarray]
_GRAPH_ONLY = ("machine", *_STEP, "clear_devices", "placement", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--problem", help=PROBLEM_HELP + "; with --assignment")
    source.add_argument("--input_graph", help=GRAPH_HELP + "; with --machine")
    parser.add_argument(
        "--assignment",
        help="with --problem: a JSON file with a list 'assignment', a device index per group, such "
        "as a result of `search`",
    )
    parser.add_argument("--machine", help="with --input_graph: " + MACHINE_HELP)
    step = parser.add_argument_group("what a step of --input_graph runs")
    add_step(step)
    add_clear_devices(step)
    parser.add_argument(
        "--placement",
        help="with --input_graph: placement.json of a search; the graph as it came by default",
    )
    parser.add_argument("--output", help="where the report goes (.json; - is standard output)")
    parser.add_argument(
        "--trace",
        help="where a Chrome trace of the step goes (.json; - is standard output), for "
        "ui.perfetto.dev; with --placement also of the graph as it came",
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIRECTORY",
        help="with --input_graph: gets the graph with devices and times for TensorBoard, and with "
        "--placement the graph as it came beside it",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Simulates one step of a problem or of a graph; prints and writes what happens in it.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: something of this is wrong or
            cannot be run.
    """
    check_standard_output(args)
    if args.problem is not None:
        _check_flags(args, "problem", needed="assignment", others=_GRAPH_ONLY)
        placed, original, graph_def = _read_problem(args), None, None
    else:
        _check_flags(args, "input_graph", needed="machine", others=("assignment",))
        placed, original, graph_def = _cost_graph(args)
    _report_step(args, placed, original, graph_def)


def _check_flags(
    args: argparse.Namespace, flag: str, *, needed: str, others: tuple[str, ...]
) -> None:
    """Makes sure that what was given goes together with --`flag`."""
    if getattr(args, needed) is None:
        raise ValueError(f"--{flag} needs --{needed}")
    for other in others:
        if getattr(args, other) not in (None, False):
            raise ValueError(f"--{other} does not go with --{flag}")


def _check_outputs(args: argparse.Namespace, *inputs: str | None) -> None:
    if args.tensorboard is not None:
        from tf_placer.runs.run_directory import check_writable

        check_writable(args.tensorboard)
    for path, other in ((args.output, args.trace), (args.trace, None)):
        if path is not None:
            check_output(path, *inputs, other)


def _read_problem(args: argparse.Namespace) -> _Placed:
    """Reads the problem and the device of each group."""
    _check_outputs(args, args.problem, args.assignment)
    problem = read_problem(args.problem)
    return problem, read_assignment(args.assignment, problem, args.problem)


def _cost_graph(
    args: argparse.Namespace,
) -> tuple[_Placed, _Placed | None, tf.compat.v1.GraphDef]:
    """Finds out what the operations of a graph cost, and which device each group is on.

    Returns:
        The graph as it is placed; as it came, if it is placed otherwise; and the graph itself.
    """
    from graph_passes.errors import GraphError
    from graph_passes.placement import read_placement

    _check_outputs(args, args.input_graph, args.placement, args.feeds)
    placement = None if args.placement is None else read_placement(args.placement)
    costed = cost_graph_file(
        args.input_graph,
        args.machine,
        fetches=args.fetches,
        feeds_path=args.feeds,
        initializers=args.initializers,
        restore_from=args.restore_from,
        signature=args.signature,
        clear_devices=args.clear_devices,
    )
    try:
        original = costed.placed(None)
        graph_def = costed.grouped.op_graph.graph_def
        if placement is None:
            return original, None, graph_def
        return costed.placed(placement), original, graph_def
    except GraphError as error:
        if placement is None:
            raise
        raise GraphError(f"{args.placement!r} on {args.machine!r}: {error}") from None


def _report_step(
    args: argparse.Namespace,
    placed: _Placed,
    original: _Placed | None,
    graph_def: tf.compat.v1.GraphDef | None,
) -> None:
    """Simulates a placement; prints and writes what happens in its step."""
    problem, placement = placed
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
        # What only a simulated step has.
        **dict.fromkeys(("fits", "devices", "links", "critical_path")),
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
        lines += _write_steps(args, traced, original, graph_def)
    if args.output is not None:
        write_json(args.output, value)
        lines.append(f"report: {args.output}")
    answer(args, "\n".join(lines), value)


def _write_steps(
    args: argparse.Namespace,
    traced: StepTrace,
    original: _Placed | None,
    graph_def: tf.compat.v1.GraphDef | None,
) -> list[str]:
    """Writes a step, and that of the graph as it came, for Perfetto and TensorBoard if asked."""
    if args.trace is None and args.tensorboard is None:
        return []
    steps = {"step" if original is None else "placement": traced}
    if original is not None and (before := _traced(*original)) is not None:
        steps = {"original": before, **steps}
    lines = []
    if args.trace is not None:
        write_json(args.trace, chrome_trace(steps))
        lines.append(f"trace: {args.trace}")
    if args.tensorboard is not None and graph_def is not None:
        from tf_placer.live.step_events import write_step_events

        write_step_events(args.tensorboard, graph_def, steps)
        lines.append(f"tensorboard --logdir {args.tensorboard}")
    return lines


def _traced(problem: PlacementProblem, placement: np.ndarray) -> StepTrace | None:
    """Simulates a placement in every detail; None if an operation is where it may not go."""
    environment = SimulatedEnvironment(problem, threads=1)
    [measurement] = environment.measure(placement[None])
    failure = measurement.failure
    if failure is not None and failure.kind is FailureKind.INVALID_PLACEMENT:
        return None
    return environment.simulator.trace(placement)
