"""The command `check`: loads a SavedModel on a machine and runs its signatures."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import MACHINE_HELP, add_device_map, read_device_pairs
from tf_placer.errors import SearchError, require_tensorflow
from tf_placer.machines.lookup import find_machine
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Loads a placed SavedModel on a machine, in a process of its own, and calls each signature: "
    "prints whether it runs, the time of a call after the first ones, the memory of each device, "
    "and with --original whether it computes the same values. Fails if a signature does not run or "
    "computes other values."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("saved_model", metavar="DIR", help="directory of the SavedModel")
    parser.add_argument("--machine", default="attached", help=MACHINE_HELP)
    parser.add_argument(
        "--original",
        metavar="DIR",
        help="SavedModel whose signatures must compute the same values; it runs on the CPU of this "
        "computer",
    )
    parser.add_argument("--signature", help="signature to call; by default all")
    parser.add_argument(
        "--feeds",
        help=".npz file with values of arguments by name; others are made up, with 1 for "
        "dimensions of unknown size",
    )
    add_device_map(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Checks a SavedModel on a machine, and prints a table of its signatures.

    Raises:
        GraphError, MachineError, SearchError, ValueError: an argument is wrong, or the SavedModel
            cannot be loaded.
        SearchError: a signature does not run or computes other values; printed after the table.
    """
    device_map = read_device_pairs(args)
    require_tensorflow()
    with Stages(say) as stages:
        stages.begin("importing TensorFlow")
        from tf_placer.live.signature_check import check_saved_model

        stages.enter(f"finding the devices of {args.machine}")
        check = check_saved_model(
            args.saved_model,
            find_machine(args.machine),
            original=args.original,
            signature_key=args.signature,
            feeds=args.feeds,
            device_map=device_map,
            report=stages.begin,
        )
    answer(args, check.table(), check.to_json())
    if check.failure is not None:
        raise SearchError(check.failure)
