"""The command `serve`: runs the worker processes of a local machine until it is interrupted."""

from __future__ import annotations

import argparse
import contextlib

from tf_placer.errors import require_tensorflow
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.lookup import find_machine

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Starts the TensorFlow servers of a 'local:N' machine, so that sessions can run a placed graph "
    "on it: tf.compat.v1.Session('grpc://localhost:PORT'). Runs until interrupted."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("machine", help="'local:N' or 'local:N,memory_mb=M'")
    parser.add_argument(
        "--port", type=_port, help="port of the first server; a free one by default"
    )


def run(args: argparse.Namespace) -> None:
    """Serves sessions until interrupted.

    Raises:
        LocalClusterError, MachineError: the machine cannot be served.
    """
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
