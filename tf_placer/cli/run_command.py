"""The command `run`: runs a training script that stays as it is, with its step placed."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tf_placer.errors import require_tensorflow

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Runs a training script of TensorFlow 1 or 2 as 'python SCRIPT ARGS...' would. The first time "
    "it runs until it is about to train; that step is searched for, and the script begins again, "
    "placed. Later runs of the same step are placed at once; a step that has changed runs as it "
    "came. Nothing in the script needs to change, and its checkpoints stay what they are. A search "
    "that was killed goes on when the command is given again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--placement",
        metavar="PATH",
        help="the placement.json or the directory of a search: nothing is searched for",
    )
    how.add_argument(
        "--search_secs",
        type=float,
        help="seconds that the search takes at most (default 600); with more than an ended search "
        "had it goes on",
    )
    parser.add_argument(
        "--machine",
        help="where to place: 'attached' (the CPU and GPUs of this computer; the default), "
        "'local:N' (N worker processes on its cores) or 'grpc://HOST:PORT,HOST:PORT,...' (a "
        "running cluster; sessions need its first address only); the script's sessions and "
        "functions run there",
    )
    parser.add_argument(
        "--log_dir",
        help="directory of the search; by default the name of the script with the ending "
        "'.tf_placer', here. Delete it to have the step searched for again",
    )
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument("args", metavar="ARGS", nargs=argparse.REMAINDER, help="its arguments")


def run(args: argparse.Namespace) -> Callable[[], None]:
    """Prepares to run a script.

    Returns:
        What runs it: nothing that the script raises is an error of the command.

    Raises:
        GraphError, MachineError, OSError, ValueError: what is asked cannot be done.
    """
    require_tensorflow()
    from tf_placer.scripts.script_run import prepare_script, search_directory

    return prepare_script(
        args.script,
        args.args,
        machine=args.machine,
        placement=args.placement,
        log_dir=args.log_dir or search_directory(args.script),
        search_secs=args.search_secs,
    )
