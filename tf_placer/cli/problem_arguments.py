"""The arguments of the commands on problems.

Each command imports what it needs when it runs: `search` and `simulate --problem` do without
TensorFlow.
"""

from __future__ import annotations

import argparse
import math
import sys

from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    add_placer,
    add_step,
    comma_separated,
    placer_options,
    placers_help,
)
from tf_placer.errors import require_tensorflow
from tf_placer.placers import AUTO

__all__ = ["add_problem_commands"]

_PROBLEM_HELP = "problem file (.json), as `profile` writes it"
_DEFAULT_SECS = 60.0
# By value of --groups, what `group_operations` calls it.
_GROUPINGS = {"heuristic": "heuristic", "operations": "per_operation"}


def add_problem_commands(commands: argparse._SubParsersAction) -> None:
    """Adds the commands to those of the command line."""
    _add_profile(commands)
    _add_search(commands)
    _add_simulate(commands)
    _add_pretrain(commands)
    machines = commands.add_parser(
        "machines",
        help="list the machines that are known without being attached",
        description="Prints the catalogue of machines: their devices, memory and links, and where "
        "the numbers come from.",
    )
    machines.set_defaults(run=_machines)


def _add_profile(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "profile",
        help="turn a graph and a machine into a placement problem",
        description="Traces a few steps of the graph on each kind of device of the machine and "
        "measures its links, or computes both for a machine that is not attached. Writes what "
        "everything costs to a problem file, which `search` and `simulate` need neither the graph "
        "nor the machine for.",
    )
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--machine", default="attached", help=MACHINE_HELP)
    parser.add_argument("--output", required=True, help="where the problem goes (.json)")
    add_step(parser)
    parser.add_argument(
        "--steps", type=int, default=10, help="steps to trace on each device (default 10)"
    )
    parser.add_argument(
        "--groups",
        choices=tuple(_GROUPINGS),
        default="operations",
        help="what no search takes apart: 'operations', those that TensorFlow runs on one device "
        "(default); 'heuristic', groups by the rules of `optimize`, such as a cell of a recurrent "
        "network. The former problem knows these groups, too: what places few things places them "
        "as one, `auto` does so at first",
    )
    parser.set_defaults(run=_profile)


def _add_search(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "search",
        help="find a fast placement of a problem by simulating steps",
        description="Simulates what a placer proposes, on all cores, and keeps the fastest "
        "placement that fits the memory of the devices. The result file always has the best so "
        "far, also while the search runs; Ctrl-C ends the search with it.",
        epilog=placers_help() + ". Those that learn need TensorFlow.",
    )
    parser.add_argument("--problem", required=True, help=_PROBLEM_HELP)
    parser.add_argument(
        "--output",
        required=True,
        help="where the result goes (.json): step_secs, feasible, assignment (a device index per "
        "group), peak_bytes (per device), lower_bound_secs, trials, elapsed_secs, placer, seed. "
        "If nothing fits, feasible is false and step_secs that of the closest placement",
    )
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials",
        type=int,
        default=sys.maxsize,
        help="placements to simulate at most (default: no limit)",
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        help=f"seconds at most (default: no limit with --max_trials, {_DEFAULT_SECS:g} without)",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for what a placer that learns has learned: training.jsonl, curves for "
        "TensorBoard, and the policy; nothing of this is kept by default",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="of everything random (default 0). The same seed gives the same result where "
        "--max_trials ends the search",
    )
    parser.set_defaults(run=_search)


def _add_simulate(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "simulate",
        help="simulate one step under a placement and report on it",
        description="Simulates one step and reports on it: busy, idle and copying time of each "
        "device, what crosses the links, the critical path, peak memory and what holds it, and "
        "how far from the lower bound the step is. What is placed is a problem file or a graph on "
        "a machine. A placement that does not fit is reported as such: feasible false, and the "
        "reason.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--problem", help=_PROBLEM_HELP + "; with --assignment")
    source.add_argument("--input_graph", help=GRAPH_HELP + "; with --machine")
    parser.add_argument(
        "--assignment",
        help="with --problem: a JSON file with a list 'assignment', a device index per group, such "
        "as a result of `search`",
    )
    parser.add_argument("--machine", help="with --input_graph: " + MACHINE_HELP)
    parser.add_argument(
        "--fetches",
        type=comma_separated,
        help="with --input_graph: what a step fetches: names of operations and tensors, by comma; "
        "by default the 'train_op' collection of a .meta file",
    )
    parser.add_argument(
        "--placement",
        help="with --input_graph: placement.json of a search; the graph as it came by default",
    )
    parser.add_argument("--output", help="where the report goes (.json)")
    parser.add_argument(
        "--trace", help="where a Chrome trace of the step goes (.json), for ui.perfetto.dev"
    )
    parser.set_defaults(run=_simulate)


def _add_pretrain(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "pretrain",
        help="train a policy on problems, to be used on others",
        description="Trains the policy of the placer graph_neural, whose weights fit any graph on "
        "any machine, on simulated placements of the problems in turn. A search starts from the "
        "weights with --placer=graph_neural --placer_option=initial_weights=FILE. Ctrl-C ends the "
        "training with what was learned until then.",
    )
    parser.add_argument(
        "--problems", required=True, nargs="+", metavar="PROBLEM", help=_PROBLEM_HELP
    )
    parser.add_argument(
        "--output",
        required=True,
        help="where the weights go (.weights.h5); what they were trained on goes beside them, into "
        "a .json file",
    )
    parser.add_argument(
        "--updates",
        type=int,
        default=500,
        help="how many, over all problems (default 500)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.set_defaults(run=_pretrain)


def _profile(args: argparse.Namespace) -> None:
    require_tensorflow()
    from tf_placer.cli.profile_command import profile_file

    profile_file(
        args.input_graph,
        args.output,
        machine=args.machine,
        fetches=args.fetches,
        feeds_path=args.feeds,
        initializers=args.initializers,
        steps=args.steps,
        grouping=_GROUPINGS[args.groups],
    )


def _search(args: argparse.Namespace) -> None:
    from tf_placer.cli.search_command import search_file

    max_secs = args.max_secs
    if max_secs is None:
        max_secs = _DEFAULT_SECS if args.max_trials == sys.maxsize else math.inf
    search_file(
        args.problem,
        args.output,
        placer=args.placer,
        placer_options=placer_options(args.placer_option),
        max_trials=args.max_trials,
        max_secs=max_secs,
        log_dir=args.log_dir,
        seed=args.seed,
    )


def _simulate(args: argparse.Namespace) -> None:
    if args.problem is not None:
        _check_flags(args, "problem", needed="assignment", others=_GRAPH_ONLY)
        from tf_placer.cli.problem_commands import simulate_file

        simulate_file(args.problem, args.assignment, output=args.output, trace=args.trace)
        return
    _check_flags(args, "input_graph", needed="machine", others=("assignment",))
    require_tensorflow()
    from tf_placer.cli.profile_command import simulate_graph_file

    simulate_graph_file(
        args.input_graph,
        machine=args.machine,
        fetches=args.fetches,
        placement_path=args.placement,
        output=args.output,
        trace=args.trace,
    )


def _pretrain(args: argparse.Namespace) -> None:
    require_tensorflow()
    from tf_placer.cli.pretrain_command import pretrain_files

    pretrain_files(args.problems, args.output, updates=args.updates, seed=args.seed)


_GRAPH_ONLY = ("machine", "fetches", "placement")


def _check_flags(
    args: argparse.Namespace, flag: str, *, needed: str, others: tuple[str, ...]
) -> None:
    """Makes sure that what was given goes together with --`flag`."""
    if getattr(args, needed) is None:
        raise ValueError(f"--{flag} needs --{needed}")
    for other in others:
        if getattr(args, other) is not None:
            raise ValueError(f"--{other} does not go with --{flag}")


def _machines(args: argparse.Namespace) -> None:
    from tf_placer.machines.catalogue import catalogue_table

    print(catalogue_table())
