"""The command line: `python -m tf_placer COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Mapping, Sequence

from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.machines.local_cluster import LocalClusterError
from tf_placer.start_up_messages import without_start_up_messages

__all__ = ["COMMANDS", "main"]

#: By command its module, and what the list of commands says of it. A module has `DESCRIPTION`,
#: `add_arguments(parser)` and `run(args)`. Only that of the command that is called is imported, and
#: it imports TensorFlow only when it runs.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "optimize": ("tf_placer.cli.optimize_command", "find a faster placement of a graph"),
    "run": ("tf_placer.cli.run_command", "run a training script with its step placed"),
    "apply": ("tf_placer.cli.apply_command", "put a saved placement on a graph"),
    "profile": (
        "tf_placer.cli.profile_command",
        "turn a graph and a machine into a placement problem",
    ),
    "search": (
        "tf_placer.cli.search_command",
        "find a fast placement of a problem by simulating steps",
    ),
    "simulate": (
        "tf_placer.cli.simulate_command",
        "simulate one step under a placement and report on it",
    ),
    "pretrain": (
        "tf_placer.cli.pretrain_command",
        "train a policy on problems, to be used on others",
    ),
    "machines": (
        "tf_placer.cli.machines_command",
        "list the machines that are known without being attached",
    ),
    "placers": (
        "tf_placer.cli.placers_command",
        "list what can search, and the settings of each",
    ),
    "log": ("tf_placer.cli.log_command", "show the log of a search"),
    "build_pass": (
        "tf_placer.cli.build_pass_command",
        "build what places graphs of programs that stay as they are",
    ),
    "cluster": ("tf_placer.cli.cluster_command", "run a cluster of workers on this computer"),
    "serve": ("tf_placer.cli.serve_command", "run the worker processes of a local machine"),
}
_EXIT_CODES = (
    "Exit codes: 0, done; 1, something is wrong, as the last line says in one sentence, and no "
    "output was written; 2, the arguments cannot be understood."
)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    # Not absl's own parser: its flags take the name --log_dir.
    parser = argparse.ArgumentParser(
        prog="tf_placer",
        description="Finds out which device each operation of a TensorFlow graph should run on, by "
        "timing real steps, and writes the devices into the graph. What costs what can be saved as "
        "a placement problem, which is searched by simulating steps, without the machine.",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = next((text for text in argv if not text.startswith("-")), None)
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == called:
            module = importlib.import_module(module_name)
            command.description = module.DESCRIPTION
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command; on an error says what is wrong in one sentence and exits with code 1.

    Args:
        argv: the command and its arguments; those of the process when None.
    """
    args = _parse(sys.argv[1:] if argv is None else argv)
    try:
        # What a script shows is the script's.
        is_script = args.command == "run"
        with contextlib.nullcontext() if is_script else without_start_up_messages():
            args.run(args)
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        text = f"{error.filename}: {error.strerror}" if named else str(error)
        sys.exit(f"tf_placer: {text}")
    except (ImportError, LocalClusterError, SearchError, ValueError, WorkerStartError) as error:
        sys.exit(f"tf_placer: {error}")
    except KeyboardInterrupt:
        how = "; with the same --log_dir a search goes on where it was"
        sys.exit("tf_placer: interrupted" + (how if args.command == "optimize" else ""))


if __name__ == "__main__":
    main()
