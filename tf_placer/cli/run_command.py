"""The command `run`: runs an unchanged training script with its step placed."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from tf_placer.cli.answer import answer
from tf_placer.cli.arguments import (
    add_answers,
    add_clear_devices,
    add_restrictions,
    read_restrictions,
)
from tf_placer.errors import describe_error, require_tensorflow
from tf_placer.files import check_output, is_standard_output
from tf_placer.text.notes import say

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Runs a training script of TensorFlow 1 or 2 as 'python SCRIPT ARGS...' would. The first time, "
    "it runs until its first training step; a search places that step, and the script starts "
    "again, placed. Later runs of the same step are placed at once; a step that has "
    "changed runs unplaced. The script needs no change, and its checkpoints stay compatible. A "
    "search that was killed resumes when the command is given again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--placement",
        metavar="PATH",
        help="placement.json or directory of a search, to use without another search",
    )
    how.add_argument(
        "--search_secs",
        type=float,
        help="time limit of the search in seconds (default 600); with a larger one, a search that "
        "has ended resumes",
    )
    parser.add_argument(
        "--machine",
        help="machine to place on: 'attached' (the CPU and GPUs of this computer; the default), "
        "'local:N' (N worker processes on its cores), 'numa' (one per NUMA node), "
        "'cores:0-7/8-15' (one per group of cores) or 'grpc://HOST:PORT,HOST:PORT,...' (a "
        "running cluster; sessions need its first address only); the script's sessions and "
        "functions run there",
    )
    parser.add_argument(
        "--log_dir",
        help="directory of the search; by default the name of the script with the ending "
        "'.tf_placer', in the current directory. Delete it to search again",
    )
    add_answers(parser, otherwise="for the training step")
    add_clear_devices(parser)
    add_restrictions(parser)
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="file for one JSON object about the placement, written when the script has ended; "
        "docs/programs.md describes it",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> Callable[[], None]:
    """Prepares to run a script.

    Returns:
        A function that runs the script. The command must call it outside of its error handling,
            because an exception of the script is no error of the command.

    Raises:
        GraphError, MachineError, OSError, ValueError: an argument is wrong.
        NoAnswerError: an answer is required, and there is none.
    """
    # An error of the check must not be written to the file that it protects.
    path, args.json = args.json, None
    require_tensorflow()
    from tf_placer.runs.own_files import own_paths
    from tf_placer.scripts.script_run import prepare_script, search_directory

    log_dir = args.log_dir or search_directory(args.script)
    if path is not None:
        check_output(path, args.script, *own_paths(log_dir))
        # The script may change the working directory.
        args.json = path if is_standard_output(path) else os.path.abspath(path)
    return prepare_script(
        args.script,
        args.args,
        machine=args.machine,
        placement=args.placement,
        log_dir=log_dir,
        search_secs=args.search_secs,
        answers=args.answers,
        require_answer=args.require_answer,
        clear_devices=args.clear_devices,
        **read_restrictions(args),
        answer=None if args.json is None else lambda values: _answer(args, values),
    )


def _answer(args: argparse.Namespace, values: Mapping[str, Any]) -> None:
    """Writes the JSON object, or a line about an error: the exit status is that of the script."""
    try:
        answer(args, "", values)
    except OSError as error:
        say(describe_error(error))
