"""The command `machines`: prints the catalog of machines, or one machine in detail."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.machines.catalog import build_catalog_values, format_catalog
from tf_placer.machines.machine_table import build_machine_values, format_machine

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints the catalog of machines, a line for each kind; or some machines in detail: their "
    "devices, memory and links, and the sources of the numbers, or the devices of a machine that "
    "is there, such as the NUMA nodes of this computer."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a machine to show: a name with a number of GPUs, such as 4xA100, a mix of such "
        "names, such as 1xA100+2xT4, computers with a network, such as 2x8xA100@100Gb, a machine "
        "file (.json), or a machine that is there, such as "
        "numa (a device for each NUMA node) or local:2; by default the catalog",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the catalog, or machines in detail.

    Raises:
        MachineError: there is no such machine.
    """
    if not args.names:
        answer(args, format_catalog(), build_catalog_values())
        return
    parts = [format_machine(name) for name in args.names]
    if len(parts) > 1:
        parts = [f"{name}\n\n{part}" for name, part in zip(args.names, parts, strict=True)]
    answer(args, "\n\n\n".join(parts), build_machine_values(args.names))
