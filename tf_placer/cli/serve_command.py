"""The command `serve`: runs the worker processes of a local machine, for a command or for all."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence

from tf_placer.cli import served_command
from tf_placer.descriptors import open_standard_files, wait_until_readable
from tf_placer.errors import require_tensorflow
from tf_placer.interpreter import interpreter
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError
from tf_placer.private_network import NetworkError, PrivateNetwork, is_private
from tf_placer.text.notes import say

__all__ = ["DESCRIPTION", "TAKES_COMMAND", "add_arguments", "run"]

#: The words behind "--" are a command with arguments of its own, in `args.served`.
TAKES_COMMAND = True
#: The environment variable in which the command finds the address of the servers.
_TARGET_VARIABLE = "TF_PLACER_TARGET"
DESCRIPTION = (
    "Starts the TensorFlow servers of a 'local:N' machine and runs a command with them, such as "
    "'serve local:2 -- python train.py', whose sessions can run a placed graph there: "
    f"tf.compat.v1.Session(os.environ['{_TARGET_VARIABLE}']). Both are in a network of their own, "
    "so that nobody else reaches the servers; the command reaches nothing else by network either. "
    "With --open the servers listen for everybody, and run until they are interrupted if there is "
    "no command."
)
_LOOK_SECS = 1.0
_ASKED = "--open asks for that"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.usage = "%(prog)s [-h] [--port PORT] [--open] MACHINE [-- COMMAND ARGS...]"
    parser.add_argument("machine", metavar="MACHINE", help="'local:N' or 'local:N,memory_mb=M'")
    parser.add_argument(
        "--port", type=_port, help="port of the first server; a free one by default"
    )
    parser.add_argument(
        "--open",
        action="store_true",
        help="listen on all interfaces, without a password: whoever reaches this computer, its "
        "other users included, can then read and write your files",
    )


def run(args: argparse.Namespace) -> None:
    """Serves sessions until the command has ended, or until interrupted.

    Raises:
        LocalClusterError, MachineError: the machine cannot be served.
        OSError, ValueError: there is no command, or it cannot be run.
        SystemExit: as the command ended.
    """
    require_tensorflow()
    machine = find_machine(args.machine)
    if not machine.backend.starts_servers:
        raise MachineError(f"'serve' needs a machine 'local:N', not {args.machine!r}")
    if not args.served and not args.open:
        raise ValueError(
            f"name a command to run with the servers: 'serve {args.machine} -- python train.py'; "
            "or serve everybody who reaches this computer, with --open"
        )
    if args.served and shutil.which(args.served[0]) is None:
        raise OSError(f"cannot run {args.served[0]!r}: there is no such command")
    with contextlib.ExitStack() as stack:
        network, why_open = None, _ASKED
        if not args.open and not is_private():
            try:
                network = PrivateNetwork()
                stack.callback(network.close)
            except NetworkError as error:
                why_open = str(error)
        stack.enter_context(contextlib.suppress(KeyboardInterrupt))
        cluster = stack.enter_context(
            LocalCluster(machine, port=args.port, network=network, why_open=why_open)
        )
        if args.served:
            sys.exit(_run_command(args.served, cluster, network))
        addresses = ",".join(target.removeprefix("grpc://") for target in cluster.targets)
        print(f"{args.machine} serves sessions at {cluster.target} until interrupted", flush=True)
        print(f"as a machine for functions it is grpc://{addresses}", flush=True)
        cluster.wait()


def _run_command(
    command: Sequence[str], cluster: LocalCluster, network: PrivateNetwork | None
) -> int:
    """Runs a command beside the servers, and returns its exit code as a shell would."""
    environ = {**os.environ, _TARGET_VARIABLE: cluster.target, "no_grpc_proxy": "localhost"}
    open_standard_files()
    line, line_of_this_process = os.pipe()
    inherited: tuple[int, ...] = (line,)
    script = os.path.abspath(served_command.__file__)
    full_command = [interpreter(), "-I", "-S", script, str(line), *command]
    if network is not None:
        full_command = network.command("-", *full_command)
        environ.update(network.environ())
        inherited = (line, *network.inherited)
    # Those that are ignored stay so, as under `nohup`.
    before = {
        number: handler
        for number in (signal.SIGINT, *served_command.ENDING_SIGNALS)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    if signal.SIGINT in before:
        # Ctrl-C reaches the command, too, which ends as it likes.
        signal.signal(signal.SIGINT, lambda number, frame: None)
    try:
        with subprocess.Popen(full_command, env=environ, pass_fds=inherited) as process:
            for number in before.keys() - {signal.SIGINT}:
                signal.signal(number, lambda number, frame: process.send_signal(number))
            _wait(process, cluster)
    except OSError as error:
        raise OSError(f"cannot run {command[0]!r}: {error.strerror}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(line)
        os.close(line_of_this_process)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _wait(process: subprocess.Popen[bytes], cluster: LocalCluster) -> None:
    """Waits until a command has ended; says if a server dies meanwhile."""
    all_live = True
    ended = os.pidfd_open(process.pid)
    try:
        while not wait_until_readable(ended, _LOOK_SECS):
            try:
                if all_live:
                    cluster.wait(0)
            except LocalClusterError as error:
                # Its sessions fail; what it makes of that is its own affair.
                say(str(error))
                all_live = False
    finally:
        os.close(ended)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
