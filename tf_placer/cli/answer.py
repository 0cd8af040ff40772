"""What a command says on standard output: text for people, or JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from graph_passes.util.messages import plain_text
from tf_placer.files import is_standard_output, write_text
from tf_placer.text.notes import write_note

__all__ = ["add_json", "answer", "check_standard_output", "json_text", "print_output"]

_FORMAT = 1
# The arguments that name files for which "-" is standard output.
_OUTPUTS = ("output", "trace")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Adds --json."""
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object for programs in place of text for people; docs/programs.md "
        "describes it",
    )


def check_standard_output(args: argparse.Namespace) -> None:
    """Makes sure that only one thing goes to standard output.

    Raises:
        ValueError: two things do; the message names them.
    """
    taken = (["--json"] if args.json else []) + _written_to_standard_output(args)
    if len(taken) > 1:
        raise ValueError(f"{taken[0]} and {taken[1]} would both write to standard output")


def answer(args: argparse.Namespace, text: str, value: Mapping[str, Any]) -> None:
    """Prints what a command has to say.

    Text goes to standard error where a file of the command goes to standard output, so that whoever
    reads the file from a pipe reads nothing else.

    Args:
        args: of the command.
        text: for people.
        value: for programs: JSON values, all numbers finite.
    """
    if args.json:
        print_output(json_text(args.command, value))
    elif _written_to_standard_output(args):
        write_note(text)
    else:
        print_output(plain_text(text, lines=True))


def print_output(text: str) -> None:
    """Writes a line, or several, to standard output; nothing where that is closed.

    Raises:
        OSError: it takes nothing, as on a full disk.
    """
    if sys.stdout is not None:
        write_text("-", f"{text}\n")


def json_text(command: str, value: Mapping[str, Any]) -> str:
    """Makes the JSON object of a command, on one line."""
    return json.dumps({"format": _FORMAT, "command": command, **value}, allow_nan=False)


def _written_to_standard_output(args: argparse.Namespace) -> list[str]:
    """Lists the arguments that name standard output as the place of a file."""
    paths = {name: getattr(args, name, None) for name in _OUTPUTS}
    return [
        f"--{name} {path}"
        for name, path in paths.items()
        if path is not None and is_standard_output(path)
    ]
