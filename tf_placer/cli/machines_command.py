"""The command `machines`: prints the catalogue of machines."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.machines.catalogue import catalogue_table, catalogue_values

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints the catalogue of machines: their devices, memory and links, and where the numbers come "
    "from."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the catalogue."""
    answer(args, catalogue_table(), catalogue_values())
