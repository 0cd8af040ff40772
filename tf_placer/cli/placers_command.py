"""The command `placers`: prints the placers, their components and settings."""

from __future__ import annotations

import argparse
import dataclasses

from tf_placer.cli.answer import add_json, answer, print_output
from tf_placer.cli.arguments import add_placer_options, read_placer_options
from tf_placer.placers import describe_placer, list_placers
from tf_placer.report.placers_table import (
    placer_table,
    placer_values,
    placers_page,
    placers_table,
)
from tf_placer.text.notes import say

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Prints a table of the placers with their components and papers; or, for one placer, its "
    "settings."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument(
        "name",
        nargs="?",
        help="the placer whose settings to list: a name, or MODULE:NAME of one of your own",
    )
    add_placer_options(parser)
    parser.add_argument(
        "--markdown",
        action="store_true",
        help="print all placers, components and settings as the page docs/settings.md",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the table of all placers, or the settings of one.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: there is no such placer, option or value.
    """
    if args.name is None and (args.placer_option or args.start is not None):
        raise ValueError("--placer_option and --start need the name of a placer")
    if args.markdown and args.name is not None:
        raise ValueError("--markdown is for all placers, not for one")
    if args.markdown and args.json:
        raise ValueError("--markdown and --json exclude each other")
    if args.markdown:
        print_output(placers_page())
    elif args.name is None:
        placers = list_placers(say)
        values = {"placers": [placer_values(name) for name in placers]}
        answer(args, placers_table(placers), values)
    else:
        options = read_placer_options(args)
        text = placer_table(args.name, options)
        settings = [
            dataclasses.asdict(each) for each in describe_placer(args.name, options).settings
        ]
        answer(args, text, {"placers": [{**placer_values(args.name), "settings": settings}]})
