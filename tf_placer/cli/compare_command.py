"""The command `compare`: compares machines by the best step of one graph on each.

Needs TensorFlow only with a graph.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    add_clear_devices,
    add_restrictions,
    add_step,
    read_prices,
    read_restrictions,
)
from tf_placer.cli.graph_costs import cost_on_machines
from tf_placer.planning.compare import Source, compare
from tf_placer.planning.plan import DEFAULT_SECS
from tf_placer.report.machine_comparison import MachineComparison

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Finds a fast placement of one graph on each of several machines by simulating steps, and "
    "prints them in one table: the step, the speed-up over one GPU of the machine, memory, idle "
    "GPUs and prices; and how many GPUs would do as well. None of the machines need be there."
)
_STEP = (
    *("fetches", "feeds", "initializers", "restore_from", "signature", "clear_devices", "pin"),
    "keep_together",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = (
        "example: compare 1xA100 4xA100 8xA100 --input_graph train.meta --price 4xA100=16"
    )
    parser.add_argument(
        "machines",
        nargs="+",
        metavar="MACHINE",
        help="with --input_graph: a name that `machines` lists with a number of GPUs, such as "
        "4xA100, a mix such as 1xA100+2xT4, computers with a network such as 2x8xA100@100Gb, or a "
        "machine file (.json). Without it: a problem file "
        "that `profile` has written for a machine, or the --log_dir of a finished `search`",
    )
    parser.add_argument("--input_graph", help=GRAPH_HELP)
    step = parser.add_argument_group("the step of --input_graph")
    add_step(step)
    add_clear_devices(step)
    add_restrictions(step)
    parser.add_argument(
        "--price",
        action="append",
        default=[],
        metavar="MACHINE=PRICE",
        help="price of a machine per hour, in any currency, for the cost of a million steps; the "
        "name of a file or directory may be given without its folder and .json; may be repeated",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for the plans, one below it for each machine: `report` makes a page of "
        "them, `apply` puts the result.json of one on the graph, and another comparison goes on "
        "from them",
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=DEFAULT_SECS,
        help="time limit of all searches together in seconds, divided evenly among the machines; "
        f"reading the graph comes on top (default {DEFAULT_SECS:g})",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Compares the machines, and prints the table.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, or the
            graph cannot be run.
    """
    prices = read_prices(args.price, args.machines)
    sources: dict[str, Source] = {name: name for name in args.machines}
    if args.input_graph is not None:
        sources |= cost_on_machines(args, list(sources), **read_restrictions(args))
    else:
        for flag in _STEP:
            if getattr(args, flag) not in (None, False, []):
                raise ValueError(f"--{flag} needs --input_graph")
        for name in sources:
            if not os.path.exists(name):
                raise FileNotFoundError(
                    f"{name!r} does not exist: it is neither a problem file nor a directory; a "
                    "machine needs --input_graph"
                )
    comparison = compare(
        sources, max_secs=args.max_secs, seed=args.seed, prices=prices, log_dir=args.log_dir
    )
    text = comparison.table()
    if args.log_dir is not None:
        text += f"\n\nfor a page of these plans: {_build_report_command(comparison)}"
    answer(args, text, comparison.to_json())


def _build_report_command(comparison: MachineComparison) -> str:
    """Builds the command that makes a page of the plans, with their prices."""
    arguments: list[str] = []
    prices: list[str] = []
    for machine in comparison.machines:
        assert machine.log_dir is not None
        arguments.append(machine.log_dir)
        if machine.price_per_hour is not None:
            name = pathlib.Path(machine.log_dir).name
            prices += ["--price", f"{name}={machine.price_per_hour:g}"]
    return shlex.join(["python", "-m", "tf_placer", "report", *arguments, *prices])
