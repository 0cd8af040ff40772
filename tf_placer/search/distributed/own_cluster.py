"""A Ray cluster on this computer, for several searches: on the loopback, and with a token."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

from graph_passes.util.json_records import read_record
from tf_placer.errors import SearchError
from tf_placer.files import cache_directory, read_json
from tf_placer.interpreter import build_python_environment, find_interpreter
from tf_placer.search.distributed.workers import (
    LOOPBACK,
    LOOPBACK_ENVIRONMENT,
    OBJECT_STORE_BYTES,
    QUIET_ENVIRONMENT,
    RESOURCE,
    ray_directories,
    require_ray,
)

__all__ = ["OwnCluster", "find_own_cluster", "own_cluster"]

_START_SECS, _STOP_SECS = 120.0, 20.0
# `ray start` in a process that is asked to end when the one that started it has ended, even by
# SIGKILL; Ray then ends its processes.
_RAY_START = """
import ctypes, os, runpy, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
runpy.run_module("ray.scripts.scripts", run_name="__main__", alter_sys=True)
"""
# Where Ray writes the address of the cluster when its node is there. It takes connections before,
# and knows no workers then.
_ADDRESS_FILE = "ray_current_cluster"
_START_LOG = "start.log"
# Where `find_own_cluster` finds the token; for the user alone.
_FILE = "cluster.json"


@dataclasses.dataclass(frozen=True)
class OwnCluster:
    """A cluster that runs on this computer.

    Attributes:
        address: "ray://127.0.0.1:PORT".
        head: "127.0.0.1:PORT", by which a process is one of the cluster, and no client.
        token: without which it refuses to talk.
        process: id of the process that runs it.
    """

    address: str
    head: str
    token: str
    process: int

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of Ray that a process needs to connect to it."""
        return {**LOOPBACK_ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


def find_own_cluster() -> OwnCluster | None:
    """Finds the cluster of this user that `own_cluster` runs; None where none runs."""
    try:
        found = read_record(OwnCluster, read_json(cache_directory() / _FILE))
        os.kill(found.process, 0)
    except (OSError, ValueError):
        return None
    return found


@contextlib.contextmanager
def own_cluster(count: int, port: int | None = None) -> Iterator[OwnCluster]:
    """Runs a cluster with room for some workers, which ends with the context.

    It listens on the loopback alone and asks for a token, which is in a file that only this user
    can read.

    Args:
        count: how many workers there is room for.
        port: where it listens; a free one when None.

    Yields:
        The cluster, when it runs.

    Raises:
        ImportError: Ray is not installed.
        SearchError: a cluster runs already, the port is in use, or Ray does not start.
        ValueError: there is no room for a worker.
    """
    require_ray()
    if count < 1:
        raise ValueError(f"a cluster has room for at least 1 worker, not {count}")
    running = find_own_cluster()
    if running is not None:
        raise SearchError(
            f"a cluster of yours runs already, at {running.address} (process {running.process})"
        )
    port = _free_port(port)
    cluster = OwnCluster(f"ray://{LOOPBACK}:{port}", "", secrets.token_hex(32), os.getpid())
    file = cache_directory() / _FILE
    with ray_directories() as (private, directory):
        process = _start(count, port, private, directory, cluster)
        try:
            head = _wait(process, port, private, directory)
            cluster = dataclasses.replace(cluster, head=head)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
                json.dump(dataclasses.asdict(cluster), opened)
            yield cluster
        finally:
            file.unlink(missing_ok=True)
            _stop(process)


def _start(
    count: int, port: int, private: str, directory: str, cluster: OwnCluster
) -> subprocess.Popen[bytes]:
    command = [
        *(find_interpreter(), "-c", _RAY_START, str(os.getpid()), "start", "--head", "--block"),
        *("--port=0", f"--node-ip-address={LOOPBACK}", f"--ray-client-server-port={port}"),
        *("--include-dashboard=false", "--num-gpus=0", "--log-style=record", "--log-color=false"),
        f"--object-store-memory={OBJECT_STORE_BYTES}",
        f"--resources={json.dumps({RESOURCE: count})}",
        f"--temp-dir={directory}",
    ]
    environ = {**build_python_environment(), **QUIET_ENVIRONMENT, **cluster.environment}
    environ["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = (
        "0"  # It serves nobody who could go elsewhere.
    )
    environ["TMPDIR"] = private  # Workers are killed, and leave what they have there.
    with open(pathlib.Path(private, _START_LOG), "wb") as log:
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal reaches this process alone, which then ends the other.
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], port: int, private: str, directory: str) -> str:
    """Waits until the cluster takes connections and has its workers; returns its address."""
    deadline = time.monotonic() + _START_SECS
    path = pathlib.Path(directory, _ADDRESS_FILE)
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
            if address := path.read_text().strip():
                return address
        time.sleep(0.2)
    lines = pathlib.Path(private, _START_LOG).read_text(errors="replace").strip().splitlines()
    raise SearchError(f"Ray does not start: {lines[-1] if lines else 'it says nothing'}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the cluster: Ray ends its processes when it is asked to."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECS)
            return


def _free_port(port: int | None) -> int:
    """Finds a port where nobody listens.

    Raises:
        SearchError: somebody listens on the given one.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port or 0))
        except OSError as error:
            raise SearchError(f"cannot listen on port {port}: {error}") from None
        found: int = listener.getsockname()[1]
        return found
