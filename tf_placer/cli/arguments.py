"""Arguments that several commands take."""

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
    "placer_options",
    "placers_help",
    "search_config",
]

GRAPH_HELP = (
    "graph file: a GraphDef (.pb, .pbtxt) or a MetaGraphDef (.meta, binary or text); or a "
    "SavedModel directory"
)
OUTPUT_HELP = "where the graph with devices goes; by ending; of a SavedModel a new directory"
PROBLEM_HELP = "problem file (.json), as `profile` writes it"
MACHINE_HELP = (
    "where to place: 'attached' (the CPU and GPUs of this computer), 'local:N' (N worker processes "
    "on its cores; 'local:N,memory_mb=M' limits each), 'grpc://HOST:PORT' (a running cluster), or "
    "a machine that is not there: a machine file (.json) or a name with a number of GPUs for N, of "
    f"{catalog_names()}"
)


def add_step(parser: argparse._ActionsContainer) -> None:
    """Adds what says what a step runs.

    That is --fetches, --feeds, --initializers, --restore_from and --signature.
    """
    parser.add_argument(
        "--fetches",
        type=_comma_separated,
        help="what a step fetches: names of operations and tensors, by comma; by default the "
        "'train_op' collection of a .meta file",
    )
    parser.add_argument(
        "--feeds",
        help=".npz file with a value per placeholder, by name, of a SavedModel per argument of the "
        "signature; made up by default",
    )
    parser.add_argument(
        "--initializers",
        type=_comma_separated,
        help="operations to run before the first step, by comma; found by default",
    )
    parser.add_argument(
        "--restore_from",
        metavar="CHECKPOINT",
        help="what variables begin with: a checkpoint (what the names of its files start with), or "
        "a directory whose latest checkpoint is taken; by default what initializers give them",
    )
    add_signature(parser)


def add_signature(parser: argparse._ActionsContainer) -> None:
    """Adds --signature."""
    parser.add_argument(
        "--signature",
        help="which signature of a SavedModel; by default 'serving_default' if there is one, or "
        "the only one",
    )


def add_clear_devices(parser: argparse._ActionsContainer) -> None:
    """Adds --clear_devices."""
    parser.add_argument(
        "--clear_devices",
        action="store_true",
        help="clear the devices that the graph came with; otherwise they are kept",
    )


def add_workers(parser: argparse.ArgumentParser, *, controlled: str) -> None:
    """Adds what says who works in parallel: --workers, --num_workers, --controllers.

    Args:
        parser: of the command.
        controlled: what workers do for controllers.
    """
    parser.add_argument(
        "--workers",
        metavar="ADDRESS",
        help="who works in parallel, each on a machine of its own: 'ray' (workers that are started "
        "on this computer), 'auto' (the Ray cluster that runs here) or 'ray://HOST:PORT' (one "
        "elsewhere); needs tf_placer[ray]. By default this computer alone",
    )
    parser.add_argument(
        "--num_workers",
        type=int,
        metavar="N",
        help="workers at most (default: one on this computer; as many as a cluster has); "
        f"with --controllers, {controlled}",
    )
    parser.add_argument(
        "--controllers",
        type=int,
        metavar="C",
        help="how many processes of a placer that learns sample placements and share one set of "
        "weights, each waiting for its own placements only (default 1: the search itself); they "
        "are beside the search and no workers, but need --workers, which says whose Ray runs them",
    )


def add_placer(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds what says who searches: --placer and --placer_option."""
    parser.add_argument(
        "--placer",
        default=default,
        type=_placer,
        metavar="NAME",
        help=f"who searches (see below; default {default})",
    )
    add_placer_options(parser)


def add_placer_options(parser: argparse.ArgumentParser) -> None:
    """Adds --placer_option, and --start, which is one of them."""
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
        help="what a placer that learns samples at first: a placer that does not, such as expert, "
        "original, a placement in a file (.json), or none",
    )


def placers_help() -> str:
    """Describes the placers, for the end of a command's help."""
    placers = "; ".join(
        f"{name}{'*' if entry.needs_problem else ''}: {entry.summary}"
        for name, entry in PLACERS.items()
    )
    return (
        f"The placers: {placers}. Those with a * need to know what the operations cost: `optimize` "
        "profiles the graph first for them"
    )


def _placer(name: str) -> str:
    try:
        check_options(name, None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def _comma_separated(text: str) -> list[str]:
    """Splits a text into its names."""
    return [name.strip() for name in text.split(",") if name.strip()]


def placer_options(args: argparse.Namespace) -> dict[str, str]:
    """Reads the values of --placer_option and --start by name.

    Raises:
        ValueError: one is not NAME=VALUE, or both flags give a start.
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


def search_config(args: argparse.Namespace, **others: Any) -> SearchConfig:
    """Makes the settings of a search of what `add_placer`, `add_workers` and others added.

    Args:
        args: of a command that has --max_trials, --max_secs, --seed and --log_dir, too.
        others: more fields, and those that differ.

    Raises:
        ImportError, MachineError, ValueError: see `SearchConfig`.
    """
    names = "placer", "max_trials", "max_secs", "seed", "log_dir"
    of_workers = "workers", "num_workers", "controllers"
    given = {name: getattr(args, name) for name in (*names, *of_workers)}
    return SearchConfig(**{**given, "placer_options": placer_options(args), **others})
