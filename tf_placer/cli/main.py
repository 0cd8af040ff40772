"""The command line: `python -m tf_placer COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import tf_placer
from graph_passes.util.messages import plain_text, shortened
from tf_placer.cli.flag_file import FLAG, with_flag_files
from tf_placer.descriptors import open_standard_files
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.errors import SearchError, error_text
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
    "report": ("tf_placer.cli.report_command", "make a page and pictures of a search"),
    "build_pass": (
        "tf_placer.cli.build_pass_command",
        "build what places graphs by names (experimental; see run)",
    ),
    "cluster": ("tf_placer.cli.cluster_command", "run a cluster of workers on this computer"),
    "emulate": ("tf_placer.cli.emulate_command", "run a program on GPUs that are emulated"),
    "serve": ("tf_placer.cli.serve_command", "run the worker processes of a local machine"),
}
# What a script is given is the script's, a flag file included, and what it shows.
_RUN = "run"
_FLAG_FILE_HELP = (
    "a text file with more arguments, one on each line (--max_secs=300); # begins a comment. Later "
    "arguments count"
)
_EXIT_CODES = (
    "Exit codes: 0, done; 1, something is wrong, as the last line says in one sentence, and no "
    "output was written; 2, the arguments cannot be understood."
)


def _parse(argv: Sequence[str], start_secs: float) -> argparse.Namespace:
    # Not absl's own parser: its flags take the name --log_dir.
    parser = argparse.ArgumentParser(
        prog="tf_placer",
        description="Finds out which device each operation of a TensorFlow graph should run on, by "
        "timing real steps, and writes the devices into the graph. What costs what can be saved as "
        "a placement problem, which is searched by simulating steps, without the machine.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=f"tf_placer {tf_placer.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    called = next((text for text in argv if not text.startswith("-")), None)
    served: list[str] = []
    for name, (module_name, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name == called:
            module = importlib.import_module(module_name)
            command.description = module.DESCRIPTION
            module.add_arguments(command)
            if name != _RUN:
                command.add_argument(FLAG, metavar="FILE", help=_FLAG_FILE_HELP)
            command.set_defaults(run=module.run)
            if getattr(module, "TAKES_COMMAND", False) and "--" in argv:
                end = list(argv).index("--")
                argv, served = argv[:end], list(argv[end + 1 :])
    return parser.parse_args(argv, argparse.Namespace(served=served, start_secs=start_secs))


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command; on an error says what is wrong in one sentence and exits with code 1.

    Args:
        argv: the command and its arguments; those of the process when None.
    """
    given = list(getattr(sys, "argv", ())[1:] if argv is None else argv)
    try:
        script = _run_command(given)
        if script is not None:
            script()
    finally:
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if argv is None and is_default and given[:1] != [_RUN]:
            # All is said. Python would show where in its own end it is interrupted.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if argv is None and given[:1] != [_RUN]:
            # Python would look for cycles among all objects of TensorFlow once more, which takes
            # seconds on a busy computer.
            gc.freeze()


def _run_command(given: list[str]) -> Callable[[], None] | None:
    """Runs a command; returns the script of the command `run`, which fails and ends by itself."""
    command, script = "", None
    # The time that a command may take begins with the call, before its files are read.
    start_secs = time.monotonic()
    open_standard_files()
    if isinstance(sys.stdout, io.TextIOWrapper) and given[:1] != [_RUN]:
        # A terminal that cannot show a character gets its number.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parse(_with_flags(given), start_secs)
        command = args.command
        # What a script shows is the script's.
        is_script = command == _RUN or bool(args.served)
        with contextlib.nullcontext() if is_script else without_start_up_messages():
            script = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough, as `head` does.
        sys.exit(1)
    except (
        *(ImportError, LocalClusterError, OSError, SearchError, ValueError),
        WorkerStartError,
    ) as error:
        sys.exit(_sentence(error_text(error)))
    except KeyboardInterrupt:
        how = "; with the same --log_dir a search goes on where it was"
        sys.exit("tf_placer: interrupted" + (how if command == "optimize" else ""))
    finally:
        if command != _RUN:
            _give_up_output()
    return script


def _give_up_output() -> None:
    """Drops what standard output and error do not take; Python would try again, and complain."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # It is closed.
            continue


def _with_flags(given: list[str]) -> list[str]:
    """Reads the files of arguments, but for what a script or another command is given."""
    if given[:1] == [_RUN]:
        return given
    end = given.index("--") if "--" in given else len(given)
    return [*with_flag_files(given[:end]), *given[end:]]


def _sentence(text: str) -> str:
    """Makes one line of what is wrong: any terminal shows it, and it is not too long."""
    line = " ".join(text.split())
    return f"tf_placer: {plain_text(shortened(line))}"


if __name__ == "__main__":
    main()
