"""The command `profile`: turns a graph and a machine into a placement problem."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tf_placer.cli.answer import add_json, answer, check_standard_output
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    add_clear_devices,
    add_restrictions,
    add_step,
    read_restrictions,
)
from tf_placer.cli.graph_costs import cost_graph_file, cost_on_machines
from tf_placer.files import check_output
from tf_placer.problem.problem_file import name_problem_files, write_problem
from tf_placer.report.problem_table import problem_table, problem_values
from tf_placer.text.notes import say

if TYPE_CHECKING:
    from tf_placer.costs.costed_graph import CostedGraph

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Traces a few steps of the graph on each kind of device of the machine and "
    "measures its links, or computes both for a machine that is not attached. Writes the costs "
    "to a problem file, with which `search` and `simulate` need neither the graph nor the "
    "machine."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument(
        "--machine",
        nargs="+",
        default=["attached"],
        help=f"{MACHINE_HELP}. Of several machines that are not there, the graph is read once",
    )
    parser.add_argument(
        "--output",
        required=True,
        help="file for the problem (.json; - is standard output); for several machines a "
        "directory, which gets NAME.json for each",
    )
    add_step(parser)
    add_clear_devices(parser)
    add_restrictions(parser)
    parser.add_argument(
        "--steps", type=int, default=10, help="steps to trace on each device (default 10)"
    )
    parser.add_argument(
        "--granularity",
        choices=("fine", "coarse"),
        default="fine",
        help="size of the groups, which no search splits: 'fine', colocation groups (default); "
        "'coarse', the groups that `optimize` finds in the graph, such as a cell of a recurrent "
        "network. A fine problem has the coarse groups, too: placers of coarse groups place them, "
        "and `auto` begins with them",
    )
    parser.add_argument(
        "--measure_links",
        action="store_true",
        help="measure the links of the machine again; by default they are measured once and kept "
        "in ~/.cache/tf_placer (or in $XDG_CACHE_HOME)",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Writes the placement problem of a graph file on a machine, and prints a summary.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, or the
            graph cannot be run.
    """
    if args.steps < 1:
        raise ValueError(f"steps must be at least 1, not {args.steps}")
    check_standard_output(args)
    if len(args.machine) > 1:
        _profile_machines(args)
        return
    [machine] = args.machine
    check_output(args.output, args.input_graph, args.feeds)
    costed = cost_graph_file(
        args.input_graph,
        machine,
        fetches=args.fetches,
        feeds_path=args.feeds,
        initializers=args.initializers,
        checkpoint=args.restore_from,
        signature_key=args.signature,
        steps=args.steps,
        granularity=args.granularity,
        measure_links=args.measure_links,
        clear_devices=args.clear_devices,
        **read_restrictions(args),
    )
    from tf_placer.inputs.given_devices import describe_immovable_step

    if (note := describe_immovable_step(costed.grouped.op_graph)) is not None:
        say(note)
    problem = costed.problem()
    write_problem(problem, args.output)
    num_timeless = _count_timeless_operations(costed)
    text = (
        f"{problem.num_operations} operations in {problem.num_groups} groups, "
        f"{problem.num_tensors} tensors; costs: {costed.costs.source}"
    )
    if costed.costs.source == "profiled":
        text += f"; {num_timeless} operations take no time: folded, merged or not taken"
    values = {
        "costs": costed.costs.source,
        "operations_without_time": num_timeless,
        **problem_values(problem),
        "problem": args.output,
    }
    answer(args, f"{text}\n\n{problem_table(problem)}\nproblem: {args.output}", values)


def _profile_machines(args: argparse.Namespace) -> None:
    """Writes the problems of a graph on several described machines; see `run`."""
    paths = name_problem_files(args.machine, args.output)
    for path in paths:
        check_output(path, args.input_graph, args.feeds)
    problems = cost_on_machines(
        args, args.machine, granularity=args.granularity, **read_restrictions(args)
    )
    texts, values = [], []
    for (name, problem), path in zip(problems.items(), paths, strict=True):
        write_problem(problem, path)
        texts.append(
            f"{name}: {problem.num_operations} operations in {problem.num_groups} groups, "
            f"{problem.num_tensors} tensors\n\n{problem_table(problem)}\nproblem: {path}"
        )
        values.append(
            {"machine": name, "costs": "analytic", **problem_values(problem), "problem": path}
        )
    answer(args, "\n\n".join(texts), {"machines": values})


def _count_timeless_operations(costed: CostedGraph) -> int:
    """Counts the operations that take no time on any device."""
    from tf_placer.costs.graph_problem import list_needed_operations

    kept = list_needed_operations(costed.grouped.op_graph)
    return int((costed.costs.compute_secs[kept] == 0).all(axis=1).sum())
