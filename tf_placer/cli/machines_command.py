"""The command `machines`: prints the catalog of machines."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.machines.catalog import build_catalog_values, format_catalog

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints the catalog of machines: their devices, memory and links, and the sources of the "
    "numbers."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the catalog."""
    answer(args, format_catalog(), build_catalog_values())
