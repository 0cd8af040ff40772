"""The command `serve`: runs the worker processes of a local machine until it is interrupted."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys

from tf_placer.errors import require_tensorflow
from tf_placer.machines.local_cluster import LocalCluster
from tf_placer.machines.lookup import find_machine

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Starts the TensorFlow servers of a 'local:N' machine, so that sessions can run a placed graph "
    "on it: tf.compat.v1.Session('grpc://localhost:PORT'). Runs until interrupted. Where the "
    "environment variable TF_PLACER_PLACEMENT names a placement.json, the servers place the graphs "
    "of sessions by it."
)
_LOOK_SECS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("machine", help="'local:N' or 'local:N,memory_mb=M'")
    parser.add_argument(
        "--port", type=_port, help="port of the first server; a free one by default"
    )


def run(args: argparse.Namespace) -> None:
    """Serves sessions until interrupted.

    Raises:
        GraphError: the placement that the environment names cannot be read.
        LocalClusterError, MachineError: the machine cannot be served.
        PassError: the pass that places graphs cannot be built.
    """
    require_tensorflow()
    # With a placement this reads it and builds the pass, before every server does.
    from tf_placer.native_pass import PLACEMENT_VARIABLE

    placement = os.environ.get(PLACEMENT_VARIABLE) or None
    said: set[str] = set()
    with (
        contextlib.suppress(KeyboardInterrupt),
        LocalCluster(find_machine(args.machine), port=args.port, placement=placement) as cluster,
    ):
        addresses = ",".join(target.removeprefix("grpc://") for target in cluster.targets)
        print(f"{args.machine} serves sessions at {cluster.target} until interrupted", flush=True)
        print(f"as a machine for functions it is grpc://{addresses}", flush=True)
        while True:
            cluster.wait(None if placement is None else _LOOK_SECS)
            _say_what_is_placed(cluster, said)


def _say_what_is_placed(cluster: LocalCluster, said: set[str]) -> None:
    """Shows what the pass wrote to the logs of the servers."""
    for server in cluster.servers:
        for line in server.log_lines():
            if line.startswith("tf_placer: ") and line not in said:
                said.add(line)
                print(line, file=sys.stderr, flush=True)


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)
