"""The command `cluster`: runs a Ray cluster on this computer until it is interrupted."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading

from tf_placer.search.distributed.own_cluster import own_cluster

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Starts a Ray cluster on this computer with room for N workers, for searches with --workers "
    "auto. It listens on the loopback interface only and requires a token, which searches of the "
    "same user find by themselves. Runs until interrupted. Start clusters of several computers "
    "with Ray itself: docs/workers.md."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("action", choices=["start"], help="start: run a cluster")
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of workers to have room for (default 1)",
    )
    parser.add_argument(
        "--port", type=int, help="port for ray://127.0.0.1:PORT; a free one by default"
    )


def run(args: argparse.Namespace) -> None:
    """Runs a cluster until interrupted.

    Raises:
        ImportError: Ray is not installed.
        SearchError, ValueError: the cluster cannot be started.
    """
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with (
        contextlib.suppress(KeyboardInterrupt),
        own_cluster(args.workers, args.port) as cluster,
    ):
        print(
            f"a cluster with room for {args.workers} workers is at {cluster.address} until "
            "interrupted: search with --workers auto",
            flush=True,
        )
        ended.wait()
