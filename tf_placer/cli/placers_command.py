"""The command `placers`: prints which placers there are, and what they are made of."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from tf_placer.cli.arguments import add_placer_options, placer_options
from tf_placer.errors import require_tensorflow
from tf_placer.placers import PLACERS, describe_placer, needs_problem
from tf_placer.placers.systems import System
from tf_placer.text.table import table

__all__ = ["DESCRIPTION", "add_arguments", "placer_table", "placers_table", "run"]

DESCRIPTION = (
    "Prints a table of the placers: what each is, the paper it is from and its parts; "
    "or, for one of them, its settings."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("name", nargs="?", help="the placer whose settings to list")
    add_placer_options(parser)


def run(args: argparse.Namespace) -> None:
    """Prints the table of all placers, or of one.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: there is no such placer, option or value.
    """
    if args.name is None and args.placer_option:
        raise ValueError("--placer_option needs the name of a placer")
    if args.name is None:
        print(placers_table())
    else:
        print(placer_table(args.name, placer_options(args.placer_option)))


def placers_table() -> str:
    """Lists all placers, a line each; free of TensorFlow.

    The costs of the operations, where a placer needs them, are in the problem that `search` is
    given; `optimize` profiles the graph for them.
    """
    rows: list[list[str | None]] = []
    for name, placer in PLACERS.items():
        parts: list[str | None] = [None, None, None]
        if isinstance(placer, System):
            parts = [placer.grouper, placer.policy, placer.algorithm]
        costs = "needed" if needs_problem(name) else None
        rows.append([name, *parts, costs, placer.reference, placer.summary])
    headers = ["placer", "grouper", "policy", "algorithm", "costs", "from", "what it is"]
    return table(headers, rows)


def placer_table(name: str, options: Mapping[str, str] | None = None) -> str:
    """Describes one placer with its parts and settings, each with its value and what it means.

    Args:
        name: of the placer.
        options: settings that differ from its defaults; another part has other settings.

    Raises:
        ImportError: the placer needs TensorFlow, which is not installed.
        ValueError: there is no such placer, option or value.
    """
    try:
        placer = describe_placer(name, options)
    except ImportError:
        require_tensorflow()
        raise
    lines = [f"{placer.name}: {placer.summary} ({placer.reference})"]
    if needs_problem(name):
        lines.append("needs to know what the operations cost: `optimize` profiles the graph first")
    if not placer.settings:
        return "\n".join([*lines, "no settings"])
    rows = [
        [setting.name, _text(setting.value), setting.part, setting.help]
        for setting in placer.settings
    ]
    return "\n".join([*lines, "", table(["setting", "value", "part", "meaning"], rows)])


def _text(value: object) -> str:
    """Formats a value as --placer_option takes it."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)
