"""The command line: `python -m tf_placer COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import gc
import importlib
import io
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import tf_placer
from graph_passes.clearing_advice import CLEARING_FLAG, clear_by
from graph_passes.util.messages import plain_text, shorten_text
from tf_placer.cli.answer import answer_error
from tf_placer.cli.flag_file import FLAG, expand_flag_files
from tf_placer.descriptors import open_standard_files
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.errors import SearchError, describe_error
from tf_placer.machines.local_cluster import LocalClusterError
from tf_placer.start_up_messages import hide_start_up_messages
from tf_placer.text.notes import write_note

__all__ = ["COMMANDS", "main"]

#: The module and the summary of each command. A module has `DESCRIPTION`, `add_arguments(parser)`
#: and `run(args)`. Only the module of the called command is imported, and it imports TensorFlow
#: only when it runs.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "optimize": ("tf_placer.cli.optimize_command", "find a faster placement of a graph"),
    "run": ("tf_placer.cli.run_command", "run a training script with its step placed"),
    "apply": ("tf_placer.cli.apply_command", "put a saved placement on a graph"),
    "check": (
        "tf_placer.cli.check_command",
        "load a placed SavedModel and run its signatures",
    ),
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
    "offload": (
        "tf_placer.cli.offload_command",
        "let tensors of a graph wait on the CPU, so that it fits",
    ),
    "order": (
        "tf_placer.cli.order_command",
        "set the order in which GPUs are handed operations",
    ),
    "compare": (
        "tf_placer.cli.compare_command",
        "compare machines to buy or rent by the best step on each",
    ),
    "pretrain": (
        "tf_placer.cli.pretrain_command",
        "train a policy on problems, for use on others",
    ),
    "machines": (
        "tf_placer.cli.machines_command",
        "list the machines that need not be attached, or show one",
    ),
    "placers": (
        "tf_placer.cli.placers_command",
        "list the placers and their settings",
    ),
    "log": ("tf_placer.cli.log_command", "show the log of a search"),
    "report": ("tf_placer.cli.report_command", "make a page and pictures of a search"),
    "build_pass": (
        "tf_placer.cli.build_pass_command",
        "build the pass that places graphs by names (experimental; see run)",
    ),
    "cluster": ("tf_placer.cli.cluster_command", "run a cluster of workers on this computer"),
    "emulate": ("tf_placer.cli.emulate_command", "run a program on emulated GPUs"),
    "serve": ("tf_placer.cli.serve_command", "run the worker processes of a local machine"),
}
# The arguments after `run` belong to the script, flag files included, and so does its output.
_RUN = "run"
_FLAG_FILE_HELP = (
    "a text file with further arguments, one on each line (--max_secs=300); # begins a comment. "
    "Later arguments override earlier ones"
)
_EXIT_CODES = (
    "Exit codes: 0, done; 1, an error, which the last line states in one sentence; no output was "
    "written; 2, the arguments cannot be understood; 3, a search of `optimize` "
    "ended without a verdict, and the graph is written unchanged; or `search` found nothing that "
    "fits."
)


class _ArgumentsError(SystemExit):
    """The exit with code 2, after the message for people."""

    def __init__(self, message: str) -> None:
        super().__init__(2)
        self.message = message


class _Parser(argparse.ArgumentParser):
    """A parser that prints its usage only where an argument is missing or unknown."""

    def error(self, message: str) -> NoReturn:
        """Exits with code 2 and the message."""
        # argparse names the argument first whose value is wrong.
        if not message.startswith("argument "):
            self.print_usage(sys.stderr)
        self._print_message(plain_text(f"{self.prog}: error: {message}") + "\n", sys.stderr)
        raise _ArgumentsError(message)


def _parse(argv: Sequence[str], start_secs: float) -> argparse.Namespace:
    # absl's parser cannot be used: it defines --log_dir itself.
    parser = _Parser(
        prog="tf_placer",
        description="Finds the device on which each operation of a TensorFlow graph should run, by "
        "timing real steps, and writes the devices into the graph. The costs can be saved as a "
        "placement problem, which is searched by simulating steps, without the machine.",
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
    namespace = argparse.Namespace(served=served, start_secs=start_secs)
    args, unknown = parser.parse_known_args(argv, namespace)
    if unknown:
        command = commands.choices[args.command]
        command.error(f"unrecognized arguments: {' '.join(unknown)}{_suggest(command, unknown)}")
    return args


def _suggest(command: argparse.ArgumentParser, unknown: Sequence[str]) -> str:
    """Suggests the flag of a command whose name is the nearest to that of an unknown flag."""
    flag = next((text.partition("=")[0] for text in unknown if text.startswith("--")), "")
    known = re.findall("--[a-z_]+", command.format_usage())
    near = difflib.get_close_matches(flag, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command; on an error prints one sentence and exits with code 1.

    Args:
        argv: the command and its arguments; the arguments of the process when None.
    """
    given = list(getattr(sys, "argv", ())[1:] if argv is None else argv)
    if argv is None and given[:1] != [_RUN]:
        _find_modules_here()
    try:
        script = _run_command(given)
        if script is not None:
            script()
    finally:
        is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if argv is None and is_default and given[:1] != [_RUN]:
            # The command has ended: an interrupt now would only print a traceback.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if argv is None and given[:1] != [_RUN]:
            # At exit Python would search all objects of TensorFlow for cycles again, which takes
            # seconds on a busy computer.
            gc.freeze()
            # Python ends by SIGINT if an interrupt, although it was handled, came in code that
            # `exec` ran, as for data classes of a module that is imported late; until it runs some.
            exec("")


def _find_modules_here() -> None:
    """Lets Python find modules in the working directory, as it does for `python -m tf_placer`."""
    here = os.path.realpath(os.curdir)
    # Last, because a file there must not replace a module that is installed.
    if not sys.flags.safe_path and here not in map(os.path.realpath, filter(None, sys.path)):
        sys.path.append(here)


def _run_command(given: list[str]) -> Callable[[], None] | None:
    """Runs a command; returns the script of the command `run`, whose errors are its own."""
    command, script = "", None
    args = _find_json_arguments(given)
    # The time limit of a command begins with the call, before its files are read.
    start_secs = time.monotonic()
    open_standard_files()
    if isinstance(sys.stdout, io.TextIOWrapper) and given[:1] != [_RUN]:
        # Print the number of a character that the terminal cannot show.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        args = _parse(_expand_arguments(given), start_secs)
        command = args.command
        # Messages of TensorFlow at start-up are part of the output of a script.
        is_script = command == _RUN or bool(args.served)
        clearing = CLEARING_FLAG if hasattr(args, "clear_devices") else None
        with (
            contextlib.nullcontext() if is_script else hide_start_up_messages(),
            clear_by(clearing),
        ):
            script = args.run(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except _ArgumentsError as error:
        with contextlib.suppress(OSError):
            answer_error(args, argparse.ArgumentError.__name__, error.message)
        raise
    except BrokenPipeError:
        # The reader of a pipe has closed it, as `head` does.
        sys.exit(1)
    except (
        *(ImportError, LocalClusterError, OSError, SearchError, ValueError),
        WorkerStartError,
    ) as error:
        for note in getattr(error, "__notes__", ()):
            write_note(note)
        _exit(args, _find_kind(error), describe_error(error))
    except KeyboardInterrupt as error:
        resumes = command == "optimize" and args is not None and args.log_dir is not None
        how = "; the same command resumes the search" if resumes else ""
        _exit(args, type(error).__name__, f"interrupted{how}")
    finally:
        if command != _RUN:
            _discard_unwritable_output()
    return script


def _find_json_arguments(given: Sequence[str]) -> argparse.Namespace | None:
    """Finds what an error before the arguments are parsed needs; None if it is for people."""
    command = next((text for text in given if text in COMMANDS), None)
    if command in (None, _RUN) or "--json" not in given:
        return None
    return argparse.Namespace(command=command, json=True)


def _find_kind(error: Exception) -> str:
    """Finds the name of an error by which programs can catch it: of the package, or of Python."""
    kinds = (
        kind.__name__
        for kind in type(error).__mro__
        if kind.__name__ in tf_placer.__all__ or kind.__module__ == "builtins"
    )
    return next(kinds)


def _exit(args: argparse.Namespace | None, kind: str, text: str) -> NoReturn:
    """Exits with code 1 and an error, as one line of limited length that any terminal can show."""
    line = shorten_text(" ".join(text.split()))
    with contextlib.suppress(OSError):  # The error below says more than a full disk.
        answer_error(args, kind, line)
    sys.exit(f"tf_placer: {plain_text(line)}")


def _discard_unwritable_output() -> None:
    """Discards output that cannot be written, which Python would try again at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except ValueError:  # The stream is closed.
            continue


def _expand_arguments(given: list[str]) -> list[str]:
    """Expands files of arguments, except in the arguments of a script or a served command."""
    if given[:1] == [_RUN]:
        return given
    end = given.index("--") if "--" in given else len(given)
    return [*expand_flag_files(given[:end]), *given[end:]]


if __name__ == "__main__":
    main()
