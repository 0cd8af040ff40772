"""The command `simulate`: simulates one step and reports on it.

Needs no TensorFlow with a problem file.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import numpy as np

from tf_placer.cli.answer import add_json, answer, check_standard_output
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    PLACEMENT_HELP,
    PROBLEM_HELP,
    add_clear_devices,
    add_memory_limits,
    add_step,
    read_memory_limits,
)
from tf_placer.cli.graph_costs import place_graph_file
from tf_placer.cli.step_files import write_steps
from tf_placer.files import check_output, write_json
from tf_placer.planning.simulated_step import simulate
from tf_placer.problem.assignment_file import read_assignment
from tf_placer.problem.memory_limits import check_headroom, limit_problem, read_max_memory
from tf_placer.problem.problem_file import read_problem

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Simulates one step of a problem file, or of a graph on a machine, and reports on it: busy, "
    "idle and copying time of each device, the transfers over the links, the critical path, peak "
    "memory and its holders, and the distance to the lower bound. A placement that does not fit is "
    "reported with feasible false and the reason."
)
_STEP = ("fetches", "feeds", "initializers", "restore_from", "signature")
_GRAPH_ONLY = ("machine", *_STEP, "clear_devices", "placement", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--problem", help=PROBLEM_HELP)
    source.add_argument("--input_graph", help=GRAPH_HELP + "; with --machine")
    parser.add_argument(
        "--assignment",
        help="with --problem: a JSON file with a list 'assignment', a device index per group, such "
        "as a result of `search`, or the placement of a plan",
    )
    parser.add_argument("--machine", help="with --input_graph: " + MACHINE_HELP)
    step = parser.add_argument_group("the step of --input_graph")
    add_step(step)
    add_clear_devices(step)
    parser.add_argument(
        "--placement",
        help=f"with --input_graph: {PLACEMENT_HELP}; the original by default",
    )
    add_memory_limits(parser)
    parser.add_argument("--output", help="file for the report (.json; - is standard output)")
    parser.add_argument(
        "--trace",
        help="file for a Chrome trace of the step (.json; - is standard output), for "
        "ui.perfetto.dev; with --placement also of the original",
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIRECTORY",
        help="with --input_graph: directory for the graph with devices and times for TensorBoard; "
        "with --placement also for the original",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Simulates one step of a problem or of a graph; prints and writes a report on it.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, or the
            graph cannot be run.
    """
    check_standard_output(args)
    limits = read_max_memory(read_memory_limits(args.max_memory)), check_headroom(args.headroom)
    steps, graph_def = {}, None
    if args.problem is not None:
        _check_unused(args, "problem", _GRAPH_ONLY)
        _check_outputs(args, args.problem, args.assignment)
        problem = limit_problem(read_problem(args.problem), *limits)
        # Without a placement, everything is on the first accelerator that it may be on.
        placement: Mapping[str, str] | np.ndarray = {}
        if args.assignment is not None:
            placement = read_assignment(args.assignment, problem, args.problem)
        step = simulate(problem, placement)
        steps["step"] = step
    else:
        if args.machine is None:
            raise ValueError("--input_graph needs --machine")
        _check_unused(args, "input_graph", ("assignment",))
        _check_outputs(args, args.input_graph, args.placement, args.feeds)
        placed, original, costed = place_graph_file(args)
        graph_def = costed.grouped.op_graph.graph_def
        step = simulate(limit_problem(placed[0], *limits), placed[1])
        if original is not None:
            steps["original"] = simulate(limit_problem(original[0], *limits), original[1])
        steps["step" if original is None else "placement"] = step
    lines = [step.table()]
    if step.trace is not None:
        lines += write_steps(args, steps, graph_def)
    if args.output is not None:
        write_json(args.output, step.to_json())
        lines.append(f"report: {args.output}")
    elif args.trace is None and step.trace is not None:
        lines.append(
            "--output writes all of the path, the links and the memory; --trace shows them in time"
        )
    answer(args, "\n".join(lines), step.to_json())


def _check_unused(args: argparse.Namespace, flag: str, others: tuple[str, ...]) -> None:
    """Checks that flags that do not go with --`flag` are not given.

    Raises:
        ValueError: one of `others` is.
    """
    for other in others:
        if getattr(args, other) not in (None, False):
            raise ValueError(f"--{other} cannot be used with --{flag}")


def _check_outputs(args: argparse.Namespace, *inputs: str | None) -> None:
    if args.tensorboard is not None:
        from tf_placer.runs.run_directory import check_writable

        check_writable(args.tensorboard)
    for path, other in ((args.output, args.trace), (args.trace, None)):
        if path is not None:
            check_output(path, *inputs, other)
