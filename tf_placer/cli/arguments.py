"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import Any

from tf_placer.machines.catalog import catalog_names
from tf_placer.placers import PLACERS, check_options
from tf_placer.search.config import SearchConfig

__all__ = [
    "GRAPH_HELP",
    "MACHINE_HELP",
    "OUTPUT_HELP",
    "PROBLEM_HELP",
    "add_clear_devices",
    "add_placer",
    "add_placer_options",
    "add_signature",
    "add_step",
    "add_workers",
    "build_search_config",
    "placers_help",
    "read_placer_options",
]

GRAPH_HELP = (
    "graph file: a GraphDef (.pb, .pbtxt) or a MetaGraphDef (.meta, binary or text); or a "
    "SavedModel directory"
)
OUTPUT_HELP = (
    "file for the graph with devices, in the format of its ending; for a SavedModel a new directory"
)
PROBLEM_HELP = "problem file (.json) that `profile` has written"
MACHINE_HELP = (
    "where to place: 'attached' (the CPU and GPUs of this computer), 'local:N' (N worker processes "
    "on its cores; 'local:N,memory_mb=M' limits each), 'grpc://HOST:PORT' (a running cluster), or "
    "a machine that is not there: a machine file (.json) or a name with a number of GPUs for N, of "
    f"{catalog_names()}"
)


def add_step(parser: argparse._ActionsContainer) -> None:
    """Adds the definition of a step.

    These are --fetches, --feeds, --initializers, --restore_from and --signature.
    """
    parser.add_argument(
        "--fetches",
        type=_comma_separated,
        help="operations and tensors that a step fetches: names, separated by commas; by default "
        "the 'train_op' collection of a .meta file",
    )
    parser.add_argument(
        "--feeds",
        help=".npz file with a value for each placeholder by name, or for each argument of the "
        "signature of a SavedModel; random values by default",
    )
    parser.add_argument(
        "--initializers",
        type=_comma_separated,
        help="operations to run before the first step: names, separated by commas; found in the "
        "graph by default",
    )
    parser.add_argument(
        "--restore_from",
        metavar="CHECKPOINT",
        help="checkpoint to restore variables from: its prefix, or a directory, whose latest "
        "checkpoint is taken; by default the initializers run",
    )
    add_signature(parser)


def add_signature(parser: argparse._ActionsContainer) -> None:
    """Adds --signature."""
    parser.add_argument(
        "--signature",
        help="signature of a SavedModel; by default 'serving_default', or the only one",
    )


def add_clear_devices(parser: argparse._ActionsContainer) -> None:
    """Adds --clear_devices."""
    parser.add_argument(
        "--clear_devices",
        action="store_true",
        help="clear the devices in the graph; by default operations that have a device keep it",
    )


def add_workers(parser: argparse.ArgumentParser, *, controlled: str) -> None:
    """Adds the arguments of a parallel search: --workers, --num_workers, --controllers.

    Args:
        parser: the parser of the command.
        controlled: the effect of --num_workers with controllers, for the help text.
    """
    parser.add_argument(
        "--workers",
        metavar="ADDRESS",
        help="Ray cluster for a parallel search, in which each worker has a machine of its own: "
        "'ray' (starts workers on this computer), 'auto' (the cluster that runs here) or "
        "'ray://HOST:PORT' (a cluster elsewhere); needs tf_placer[ray]. Without it, this computer "
        "searches alone",
    )
    parser.add_argument(
        "--num_workers",
        type=int,
        metavar="N",
        help="maximum number of workers (default: one on this computer; all of a cluster); "
        f"with --controllers, {controlled}",
    )
    parser.add_argument(
        "--controllers",
        type=int,
        metavar="C",
        help="number of processes in which a learned placer samples placements; they share one set "
        "of weights, and each waits for its own placements only (default 1: the search itself). "
        "They do not count as workers, but run on the cluster that --workers names",
    )


def add_placer(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds --placer, --placer_option and --start."""
    parser.add_argument(
        "--placer",
        default=default,
        type=_placer,
        metavar="NAME",
        help=f"placer that searches (see below; default {default})",
    )
    add_placer_options(parser)


def add_placer_options(parser: argparse.ArgumentParser) -> None:
    """Adds --placer_option, and --start as a short form of one of them."""
    parser.add_argument(
        "--placer_option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the placer, as `placers NAME` lists them; may be repeated",
    )
    parser.add_argument(
        "--start",
        metavar="PLACEMENT",
        help="placement that a learned placer samples at first: the name of a heuristic such as "
        "expert, original, a placement in a file (.json), or none",
    )


def placers_help() -> str:
    """Describes the placers for the end of a help text."""
    placers = "; ".join(
        f"{name}{'*' if entry.needs_problem else ''}: {entry.summary}"
        for name, entry in PLACERS.items()
    )
    return (
        f"The placers: {placers}. Those with a * need the costs of the operations: `optimize` "
        "profiles the graph first for them"
    )


def _placer(name: str) -> str:
    try:
        check_options(name, None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _comma_separated(text: str) -> list[str]:
    """Splits a text at its commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def read_placer_options(args: argparse.Namespace) -> dict[str, str]:
    """Reads --placer_option and --start as values by name.

    Raises:
        ValueError: an option is not NAME=VALUE, or both flags give a start.
    """
    options = {}
    for item in args.placer_option:
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"--placer_option {item!r} is not NAME=VALUE")
        options[name] = value
    if args.start is not None:
        if "start" in options:
            raise ValueError("--start and --placer_option start=... are the same; give one")
        options["start"] = args.start
    return options


def build_search_config(args: argparse.Namespace, **others: Any) -> SearchConfig:
    """Builds the settings of a search from the arguments of a command.

    Args:
        args: arguments with those of `add_placer` and `add_workers`, and with --max_trials,
            --max_secs, --seed and --log_dir.
        others: further fields, which take precedence.

    Raises:
        ImportError, MachineError, ValueError: see `SearchConfig`.
    """
    names = "placer", "max_trials", "max_secs", "seed", "log_dir"
    worker_names = "workers", "num_workers", "controllers"
    fields = {name: getattr(args, name) for name in (*names, *worker_names)}
    return SearchConfig(**{**fields, "placer_options": read_placer_options(args), **others})
