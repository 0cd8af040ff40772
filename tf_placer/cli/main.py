"""The command line: `python -m tf_placer COMMAND`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    add_placer,
    add_placer_options,
    add_step,
    placer_options,
    placers_help,
)
from tf_placer.cli.problem_arguments import add_problem_commands
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.errors import SearchError, require_tensorflow
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import AUTO

__all__ = ["main"]

_EXIT_CODES = (
    "Exit codes: 0, done; 1, something is wrong, as the last line says in one sentence, and no "
    "output was written; 2, the arguments cannot be understood."
)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    # Not absl's own parser: its flags take the name --log_dir.
    parser = argparse.ArgumentParser(
        prog="tf_placer",
        description="Finds out which device each operation of a TensorFlow graph should run on, by "
        "timing real steps, and writes the devices into the graph. What costs what can be saved as "
        "a placement problem, which is searched by simulating steps, without the machine.",
        epilog=_EXIT_CODES,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_optimize(commands)
    _add_apply(commands)
    add_problem_commands(commands)
    placers = commands.add_parser(
        "placers",
        help="list what can search, and the settings of each",
        description="Prints a table of the placers: what each is, the paper it is from and the "
        "parts it is made of; or, for one of them, its settings.",
    )
    placers.add_argument("name", nargs="?", help="the placer whose settings to list")
    add_placer_options(placers)
    placers.set_defaults(run=_placers)
    log = commands.add_parser(
        "log",
        help="show the log of a search",
        description="Prints a table of the trials of a search, and one of what its placer has "
        "learned, also while it runs.",
    )
    log.add_argument("log_dir", help="directory of the search, as given to its --log_dir")
    log.set_defaults(run=_log)
    serve = commands.add_parser(
        "serve",
        help="run the worker processes of a local machine",
        description="Starts the TensorFlow servers of a 'local:N' machine, so that sessions can "
        "run a placed graph on it: tf.compat.v1.Session('grpc://localhost:PORT'). Runs until "
        "interrupted.",
    )
    serve.add_argument("machine", help="'local:N' or 'local:N,memory_mb=M'")
    serve.add_argument("--port", type=_port, help="port of the first server; a free one by default")
    serve.set_defaults(run=_serve)
    return parser.parse_args(argv)


def _add_optimize(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "optimize",
        help="find a faster placement of a graph",
        description="Times steps of the graph as it came, on each device, and split by layer; then "
        "lets a placer search. The fastest placements are measured again beside the original. The "
        "output is the graph with devices, or the graph as it came if nothing is faster. Ctrl-C "
        "ends the search with the best so far, after a short confirmation.",
        epilog=placers_help(),
    )
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--output_graph", help="where the graph with devices goes; by ending")
    add_step(parser)
    parser.add_argument("--machine", default="attached", help=MACHINE_HELP)
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials", type=int, default=150, help="placements to measure at most (default 150)"
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=600.0,
        help="seconds at most, starting, profiling and the confirmation included (default 600)",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for the log and the placement; give it again to go on with a search; a "
        "temporary one by default",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.add_argument(
        "--clear_devices",
        action="store_true",
        help="clear the devices that the graph came with; otherwise they are kept",
    )
    parser.set_defaults(run=_optimize)


def _add_apply(commands: argparse._SubParsersAction) -> None:
    parser = commands.add_parser(
        "apply",
        help="put a saved placement on a graph",
        description="Writes the devices of a placement into a graph, which may have been built "
        "anew since, and reports what did not match.",
    )
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--placement", required=True, help="placement.json of a search")
    parser.add_argument("--output_graph", required=True, help="where the graph goes; by ending")
    parser.add_argument(
        "--clear_devices",
        action="store_true",
        help="clear the devices that the graph came with; otherwise they are kept",
    )
    parser.set_defaults(run=_apply)


def _optimize(args: argparse.Namespace) -> None:
    require_tensorflow()
    from tf_placer.cli import commands

    commands.optimize_file(
        args.input_graph,
        args.output_graph,
        feeds_path=args.feeds,
        clear_devices=args.clear_devices,
        fetches=args.fetches,
        initializers=args.initializers,
        machine=args.machine,
        placer=args.placer,
        placer_options=placer_options(args.placer_option),
        max_trials=args.max_trials,
        max_secs=args.max_secs,
        log_dir=args.log_dir,
        seed=args.seed,
    )


def _apply(args: argparse.Namespace) -> None:
    require_tensorflow()
    from tf_placer.cli import commands

    commands.apply_file(
        args.input_graph, args.placement, args.output_graph, clear_devices=args.clear_devices
    )


def _placers(args: argparse.Namespace) -> None:
    from tf_placer.cli.placer_command import placer_table, placers_table

    if args.name is None and args.placer_option:
        raise ValueError("--placer_option needs the name of a placer")
    if args.name is None:
        print(placers_table())
    else:
        print(placer_table(args.name, placer_options(args.placer_option)))


def _log(args: argparse.Namespace) -> None:
    from tf_placer.live.run_directory import TRIALS, Outcome, RunDirectory
    from tf_placer.live.verdict import verdict
    from tf_placer.report.training_table import training_table
    from tf_placer.report.trials_table import log_table
    from tf_placer.search.training_log import TRAINING, read_training_log
    from tf_placer.search.trial_log import read_log

    trials, training = (os.path.join(args.log_dir, name) for name in (TRIALS, TRAINING))
    # A search on a problem has no log of trials.
    if os.path.exists(trials) or not os.path.exists(training):
        print(log_table(*read_log(trials)))
        result = RunDirectory(args.log_dir).read_result()
        if result is None:
            print("verdict: the search has not ended")
        else:
            outcome = Outcome(result["outcome"])
            found = "placed" if outcome is Outcome.FASTER else "unchanged"
            print(f"verdict: {found}: {verdict(outcome, result)}")
    if os.path.exists(training):
        _, updates = read_training_log(args.log_dir)
        print(f"\n{training_table(updates)}" if updates else "nothing was learned so far")


def _serve(args: argparse.Namespace) -> None:
    require_tensorflow()
    with (
        contextlib.suppress(KeyboardInterrupt),
        LocalCluster(find_machine(args.machine), port=args.port) as cluster,
    ):
        print(f"{args.machine} serves sessions at {cluster.target} until interrupted", flush=True)
        cluster.wait()


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs a command; on an error says what is wrong in one sentence and exits with code 1.

    Args:
        argv: the command and its arguments; those of the process when None.
    """
    # Text for people must not drown in TensorFlow's start-up messages.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    args = _parse(argv)
    try:
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
