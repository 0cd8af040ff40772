"""A private Ray cluster on this computer, which several searches of one user can share."""

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

_START_TIMEOUT_SECS, _STOP_TIMEOUT_SECS = 120.0, 20.0
# Runs `ray start` in a process that gets SIGTERM when its parent ends, even by SIGKILL; Ray then
# ends its processes.
_RAY_START = """
import ctypes, os, runpy, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv.pop(1)):
    sys.exit(1)
runpy.run_module("ray.scripts.scripts", run_name="__main__", alter_sys=True)
"""
# Ray writes the address of the cluster to this file when its node is ready. It accepts connections
# earlier, but has no workers then.
_ADDRESS_FILE = "ray_current_cluster"
_START_LOG = "start.log"
# Has the token, so only the user may read it.
_CLUSTER_FILE = "cluster.json"


@dataclasses.dataclass(frozen=True)
class OwnCluster:
    """A private cluster that runs on this computer.

    Attributes:
        address: the address for clients, "ray://127.0.0.1:PORT".
        head: the address for processes that join the cluster, "127.0.0.1:PORT".
        token: the token that the cluster requires.
        process: id of the process that runs the cluster.
    """

    address: str
    head: str
    token: str
    process: int

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of Ray that a process needs to connect to the cluster."""
        return {**LOOPBACK_ENVIRONMENT, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


def find_own_cluster() -> OwnCluster | None:
    """Finds this user's cluster, which `own_cluster` runs; None if none runs."""
    try:
        found = read_record(OwnCluster, read_json(cache_directory() / _CLUSTER_FILE))
        os.kill(found.process, 0)
    except (OSError, ValueError):
        return None
    return found


@contextlib.contextmanager
def own_cluster(count: int, port: int | None = None) -> Iterator[OwnCluster]:
    """Runs a cluster until the context ends.

    It listens on the loopback interface only and requires a token from a file that only this user
    can read.

    Args:
        count: the number of workers that the cluster has room for.
        port: the port to listen on; None for a free one.

    Yields:
        The running cluster.

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
    file = cache_directory() / _CLUSTER_FILE
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
    # The single node has no other node to hand its work to.
    environ["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = "0"
    # Killed workers leave temporary files, which are removed with this directory.
    environ["TMPDIR"] = private
    with open(pathlib.Path(private, _START_LOG), "wb") as log:
        return subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal must reach only this process, which then stops the cluster.
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], port: int, private: str, directory: str) -> str:
    """Waits until the cluster is ready, and returns its address."""
    deadline = time.monotonic() + _START_TIMEOUT_SECS
    path = pathlib.Path(directory, _ADDRESS_FILE)
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
            if address := path.read_text().strip():
                return address
        time.sleep(0.2)
    lines = pathlib.Path(private, _START_LOG).read_text(errors="replace").strip().splitlines()
    raise SearchError(f"Ray does not start: {lines[-1] if lines else 'it says nothing'}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stops the cluster; on SIGTERM, Ray ends its own processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_TIMEOUT_SECS)
            return


def _free_port(port: int | None) -> int:
    """Finds a free port, or checks that the given one is free.

    Raises:
        SearchError: the given port is in use.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port or 0))
        except OSError as error:
            raise SearchError(f"cannot listen on port {port}: {error}") from None
        found: int = listener.getsockname()[1]
        return found
