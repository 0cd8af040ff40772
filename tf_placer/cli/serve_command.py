"""The command `serve`: runs the servers of a local machine, for one command or for everybody."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys

from tf_placer.errors import require_tensorflow
from tf_placer.machines.command_on_cluster import (
    MACHINE_VARIABLE,
    TARGET_VARIABLE,
    run_on_cluster,
)
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError
from tf_placer.private_network import NetworkError, PrivateNetwork, is_private

__all__ = ["DESCRIPTION", "TAKES_COMMAND", "add_arguments", "run"]

#: The words after "--" are a command with its own arguments, in `args.served`.
TAKES_COMMAND = True
DESCRIPTION = (
    "Starts the TensorFlow servers of a machine of worker processes ('local:N', 'numa' or "
    "'cores:0-7/8-15') and runs a command with them, such as "
    "'serve local:2 -- python train.py', whose sessions can run a placed graph there: "
    f"tf.compat.v1.Session(os.environ['{TARGET_VARIABLE}']). Functions, models and `load_placed` "
    f"run there after tf_placer.connect(tf_placer.find_machine(os.environ['{MACHINE_VARIABLE}'])). "
    "Servers and command are in a private network, "
    "so that nobody else reaches the servers; the command has no other network either. "
    "With --open the servers listen on all interfaces, and without a command run until they are "
    "interrupted."
)
_OPEN_GIVEN = "--open asks for that"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.usage = "%(prog)s [-h] [--port PORT] [--open] MACHINE [-- COMMAND ARGS...]"
    parser.add_argument(
        "machine",
        metavar="MACHINE",
        help="'local:N', 'local:N,memory_mb=M', 'numa' or groups of cores such as 'cores:0-7/8-15'",
    )
    parser.add_argument(
        "--port", type=_port, help="port of the first server; a free one by default"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="listen on all interfaces, without a password: everybody who reaches this computer, "
        "its other users included, can then read and write your files",
    )


def run(args: argparse.Namespace) -> None:
    """Serves sessions until the command has ended, or until interrupted.

    Raises:
        LocalClusterError, MachineError: the machine cannot be served.
        OSError, ValueError: there is no command, or it cannot be run.
        SystemExit: with the exit code of the command.
    """
    require_tensorflow()
    machine = find_machine(args.machine)
    if not machine.backend.starts_servers:
        raise MachineError(
            f"'serve' needs a machine of worker processes, such as 'local:N', not {args.machine!r}"
        )
    if not args.served and not args.open:
        raise ValueError(
            f"name a command to run with the servers: 'serve {args.machine} -- python train.py'; "
            "or serve everybody who reaches this computer, with --open"
        )
    if args.served and shutil.which(args.served[0]) is None:
        raise OSError(f"cannot run {args.served[0]!r}: there is no such command")
    with contextlib.ExitStack() as stack:
        network, open_reason = None, _OPEN_GIVEN
        if not args.open and not is_private():
            try:
                network = PrivateNetwork()
                stack.callback(network.close)
            except NetworkError as error:
                open_reason = str(error)
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        cluster = stack.enter_context(
            LocalCluster(machine, port=args.port, network=network, open_reason=open_reason)
        )
        if args.served:
            sys.exit(run_on_cluster(args.served, cluster, network))
        print(f"{args.machine} serves sessions at {cluster.target} until interrupted", flush=True)
        print(f"as a machine for functions it is {cluster.spec}", flush=True)
        cluster.wait()


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
