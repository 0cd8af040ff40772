"""Answers of commands on standard output: text for people, or JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

from graph_passes.util.messages import plain_text
from tf_placer.files import is_standard_output, write_text
from tf_placer.text.notes import write_note

__all__ = [
    "NO_VERDICT",
    "add_json",
    "answer",
    "answer_error",
    "check_standard_output",
    "format_json",
    "print_output",
]

NO_VERDICT = 3
"""The exit code of a search that has ended without a verdict."""

_FORMAT = 1
# Arguments whose value "-" means standard output.
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
    """Checks that at most one output of a command goes to standard output.

    Raises:
        ValueError: two outputs do; the message names them.
    """
    outputs = (["--json"] if args.json else []) + _list_standard_outputs(args)
    if len(outputs) > 1:
        raise ValueError(f"{outputs[0]} and {outputs[1]} would both write to standard output")


def answer(args: argparse.Namespace, text: str, value: Mapping[str, Any]) -> None:
    """Prints the answer of a command.

    Text goes to standard error where a file of the command goes to standard output, so that a
    program that reads the file from a pipe reads nothing else.

    Args:
        args: the arguments of the command.
        text: the answer for people.
        value: the answer for programs: JSON values, all numbers finite.
    """
    if args.json:
        args.is_answered = True
        _print_json(args, value)
    elif _list_standard_outputs(args):
        write_note(text)
    else:
        print_output(plain_text(text, lines=True))


def answer_error(args: argparse.Namespace | None, kind: str, message: str) -> None:
    """Prints an error for programs, unless people asked or the answer was printed before it.

    Args:
        args: the arguments of the command; None if they cannot be understood.
        kind: the class of the error.
        message: the error, in one sentence.
    """
    if args is None or not getattr(args, "json", False) or hasattr(args, "is_answered"):
        return
    _print_json(args, {"error": {"kind": kind, "message": message}})


def _print_json(args: argparse.Namespace, value: Mapping[str, Any]) -> None:
    """Writes a JSON object to standard output, or to the file that --json of `run` names."""
    text = format_json(args.command, value)
    if isinstance(args.json, str):
        write_text(args.json, f"{text}\n")
    else:
        print_output(text)


def print_output(text: str) -> None:
    """Writes lines to standard output, unless it is closed.

    Raises:
        OSError: standard output cannot be written to, as on a full disk.
    """
    if sys.stdout is not None:
        write_text("-", f"{text}\n")


def format_json(command: str, value: Mapping[str, Any]) -> str:
    """Formats the answer of a command as a JSON object on one line."""
    return json.dumps({"format": _FORMAT, "command": command, **value}, allow_nan=False)


def _list_standard_outputs(args: argparse.Namespace) -> list[str]:
    """Lists the arguments that send a file to standard output."""
    paths = {name: getattr(args, name, None) for name in _OUTPUTS}
    return [
        f"--{name} {path}"
        for name, path in paths.items()
        if path is not None and is_standard_output(path)
    ]
