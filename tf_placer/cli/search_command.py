"""The command `search`: finds a fast placement of a problem by simulating steps.

Needs no TensorFlow, unless the placer does.
"""

from __future__ import annotations

import argparse
import math
import os
import sys

from graph_passes.placement import write_placement
from tf_placer.cli.answer import NO_VERDICT, add_json, answer, check_standard_output
from tf_placer.cli.arguments import (
    PROBLEM_HELP,
    add_memory_goal,
    add_placer,
    add_stop_at_gap,
    add_workers,
    build_search_config,
    placers_help,
)
from tf_placer.files import check_output, is_stream
from tf_placer.placers import AUTO
from tf_placer.planning.plan import DEFAULT_SECS, plan
from tf_placer.planning.plan_result import PlanResult, UnwrittenPlanError
from tf_placer.report.plan_directory import PlanDirectory
from tf_placer.report.progress import format_simulated_progress
from tf_placer.text.progress_line import ProgressLine

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Simulates the placements that a placer proposes, on all cores, and keeps the fastest "
    "placement that fits the memory of the devices. The result file has the best so far at any "
    "time; Ctrl-C ends the search with it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = placers_help() + ". Learned placers need TensorFlow."
    parser.add_argument("--problem", required=True, help=PROBLEM_HELP)
    parser.add_argument(
        "--output",
        help="file for the result (.json; - is standard output), by default result.json in the "
        "directory of --log_dir; optional with --json: "
        "step_secs, feasible, assignment (a device index per "
        "group), peak_bytes (per device), lower_bound_secs, trials, elapsed_secs, placer, seed, "
        "and placement (the device of each operation of the graph), which `apply` takes. "
        "If no placement fits, feasible is false, and the result is the closest placement",
    )
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials",
        type=int,
        default=sys.maxsize,
        help="maximum number of placements to simulate (default: no limit)",
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        help=f"time limit in seconds (default: none with --max_trials, {DEFAULT_SECS:g} without)",
    )
    add_stop_at_gap(parser)
    add_memory_goal(parser, fit="the search ends with the first placement that fits")
    parser.add_argument(
        "--log_dir",
        help="directory for the files that `report` needs: the problem, the result and the record "
        "of the search; and for those of a learned placer: training.jsonl, curves for TensorBoard, "
        "and the policy. By default none of these is kept",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="random seed (default 0). The same seed gives the same result where --max_trials ends "
        "the search, with --workers on the same number of workers",
    )
    add_workers(parser, controlled="no worker is used: the search itself simulates their samples")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Searches for the fastest placement of a problem, writes it and prints a summary.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        OSError: a file cannot be read or written.
        ValueError: the problem or a setting is wrong.
    """
    if args.output is None and args.log_dir is None and not args.json:
        raise ValueError("--output, --log_dir or --json is needed: otherwise the placement is lost")
    check_standard_output(args)
    max_secs = args.max_secs
    if max_secs is None:
        max_secs = DEFAULT_SECS if args.max_trials == sys.maxsize else math.inf
    config = build_search_config(args, max_secs=max_secs)
    if args.output is not None:
        own = [] if args.log_dir is None else PlanDirectory(args.log_dir).paths_beside_result
        check_output(args.output, args.problem, *own)
    elif args.log_dir is not None:
        args.output = os.fspath(PlanDirectory(args.log_dir).result)
    if args.log_dir is not None and args.problem == "-":
        raise ValueError("--log_dir needs --problem to be a file, whose name is in the log")
    with ProgressLine(sys.stderr) as line:
        try:
            result = plan(
                args.problem,
                config=config,
                output=args.output,
                progress=lambda *state: line.show(format_simulated_progress(*state)),
                say=line.say,
                start_secs=args.start_secs,
            )
        except UnwrittenPlanError as error:
            # Print the result that could not be written.
            line.clear()
            _answer(args, error.result)
            raise
    _answer(args, result, _write_offload(args.output, result))
    if not result.feasible:
        sys.exit(NO_VERDICT)


def _answer(args: argparse.Namespace, result: PlanResult, moved: str | None = None) -> None:
    is_file = args.output is not None and not is_stream(args.output)
    places = {"result": args.output if is_file else None, "log": args.log_dir}
    lines = [f"{what}: {path}" for what, path in places.items() if path is not None]
    written = result.to_json()
    if is_file and written["placement"] is not None and result.feasible:
        lines[0] += ", which `apply` takes as --placement to put it on the graph"
    if moved is not None:
        lines.append(
            f"offload: {moved}, which `offload` takes as --placement for what is moved to the CPU"
        )
    gap = [""] if lines else []
    values = {"output": args.output, "log_dir": args.log_dir, "offload_placement": moved}
    answer(args, "\n".join([result.table(), *gap, *lines]), written | values)


def _write_offload(output: str | None, result: PlanResult) -> str | None:
    """Writes the placement for the command `offload` beside the result.

    Args:
        output: the file of the result; None for none.
        result: the result.

    Returns:
        The file; None if the result is no file, or no activations are moved.

    Raises:
        OSError: the file cannot be written.
    """
    placement = result.offload_placement
    if output is None or is_stream(output) or placement is None:
        return None
    path = f"{output.removesuffix('.json')}.offload.json"
    write_placement(placement, path)
    return path
