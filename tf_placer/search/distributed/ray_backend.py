"""Workers as actors of Ray. Only this module imports Ray, which is an optional dependency."""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tf_placer.descriptors import wait_until_readable
from tf_placer.errors import SearchError
from tf_placer.search.distributed.actor_backend import WorkerLostError
from tf_placer.search.distributed.own_cluster import OwnCluster, find_own_cluster
from tf_placer.search.distributed.workers import (
    LOOPBACK,
    LOOPBACK_ENVIRONMENT,
    OBJECT_STORE_BYTES,
    QUIET_ENVIRONMENT,
    RESOURCE,
    Workers,
    ray_directories,
    require_ray,
)

__all__ = ["RayBackend", "connect_to_ray"]

_THREADS_VARIABLE = "OMP_NUM_THREADS"
# Keep Ray from hiding GPUs: an actor that measures uses all GPUs of its machine.
_ACTOR_ENVIRONMENT = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
# An actor on the computer of the search must not take GPU memory from the search.
_LOCAL_ACTOR_ENVIRONMENT = {**_ACTOR_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "-1"}


def _make_environment(workers: Workers, own: OwnCluster | None) -> dict[str, str]:
    """Makes the environment variables of Ray that connect it to workers.

    If Ray is started here, it requires the user's token, or a new one that only this process and
    its descendants know. A process keeps its token, because Ray reads it only once.

    Args:
        workers: the workers.
        own: the private cluster of this user, if it has the workers.
    """
    if workers.are_here:
        token = os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        return {**QUIET_ENVIRONMENT, **LOOPBACK_ENVIRONMENT, **auth}
    return {**QUIET_ENVIRONMENT, **(own.environment if own else {})}


def _find_own_cluster_of(workers: Workers) -> OwnCluster | None:
    """Finds the private cluster of this user; None if the workers are not in it."""
    own = find_own_cluster()
    # With "auto", Ray uses its own environment variable first.
    is_auto = workers.address == "auto" and not os.environ.get("RAY_ADDRESS")
    return own if own is not None and (is_auto or workers.address == own.address) else None


_STARTUP_TIMEOUT = "timed out during startup"


@contextlib.contextmanager
def connect_to_ray(workers: Workers) -> Iterator[None]:
    """Initializes Ray in this process, and starts Ray here if the workers are to run here.

    A Ray started here listens on the loopback interface only, requires a token, and ends with this
    process.

    Raises:
        ImportError: Ray is not installed.
        SearchError: no cluster can be reached, or Ray does not start.
    """
    require_ray()
    own = _find_own_cluster_of(workers)
    os.environ.update(_make_environment(workers, own))
    import ray

    with contextlib.ExitStack() as stack:
        # If Ray looked for a cluster by itself, it might find that of another search.
        is_found = own is not None and own.address != workers.address
        options: dict[str, Any] = {"address": own.head if own and is_found else workers.address}
        if workers.are_here:
            private, directory = stack.enter_context(ray_directories())
            options = {
                "address": "local",
                "include_dashboard": False,
                "num_gpus": 0,
                "object_store_memory": OBJECT_STORE_BYTES,
                "resources": {RESOURCE: workers.count or 1},
                "_node_ip_address": LOOPBACK,
                "_temp_dir": directory,
            }
            with _set_variable("TMPDIR", private):
                # Killed workers leave temporary files, which are removed with this directory.
                _init(ray, workers, options)
        else:
            _init(ray, workers, options)
        stack.callback(ray.shutdown)
        yield


def _init(ray: Any, workers: Workers, options: dict[str, Any]) -> None:
    # Restore the handler: Ray's prints pages on SIGTERM, and Ray's processes end without it.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    start = functools.partial(
        ray.init, log_to_driver=False, logging_level="ERROR", namespace="tf_placer", **options
    )
    try:
        try:
            start()
        except Exception as error:
            # Ray allows itself 30 s, in which it counts pauses of this process: the second attempt
            # succeeds after a suspension of the computer.
            if _STARTUP_TIMEOUT not in str(error):
                raise
            if workers.are_here:
                _kill_ray(options["_temp_dir"])
            start()
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise SearchError(
            f"cannot connect to workers={workers.address!r}: {first[0]}. `python -m tf_placer "
            "cluster start` starts a cluster on this computer; RAY_AUTH_TOKEN must be its token"
        ) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _kill_ray(directory: str) -> None:
    """Kills the processes of a start that failed; Ray itself keeps them until this process ends.

    Args:
        directory: the private directory of Ray, which is in the command lines of its processes.
    """
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(directory) in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)


@contextlib.contextmanager
def _set_variable(name: str, value: str) -> Iterator[None]:
    """Sets an environment variable for the processes started in the context."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class RayBackend:
    """Starts actors of a class; see `ActorBackend`.

    They run on machines with room for a worker, or on the computer of the search.
    """

    def __init__(
        self, workers: Workers, worker_type: type, *args: Any, is_local: bool = False
    ) -> None:
        """Starts nothing yet; Ray must be initialized.

        Args:
            workers: settings of the search's workers, with their number.
            worker_type: the class of the workers, in a module that all machines have.
            args: arguments of the class; sent to each machine once.
            is_local: whether the actors run on the computer of the search, without its GPUs,
                instead of on machines with room for a worker.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray: Any = ray
        self._workers = workers
        self._args = [ray.put(arg) for arg in args]
        self._type: Any = ray.remote(_make_actor_type(worker_type)).options(
            num_cpus=0,
            resources={} if is_local else {RESOURCE: 1},
            max_restarts=0,
            max_task_retries=0,
            # A worker must answer pings while it measures.
            max_concurrency=2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            if is_local
            else "SPREAD",
            runtime_env={"env_vars": _LOCAL_ACTOR_ENVIRONMENT if is_local else _ACTOR_ENVIRONMENT},
        )
        self._threads = os.environ.get(_THREADS_VARIABLE)
        self._started: list[Any] = []
        self._raylet = _connect_to_raylet(ray)

    def count_wanted(self) -> int:
        """Counts the workers that should run; see `ActorBackend.count_wanted`."""
        if self._workers.count is not None:
            return self._workers.count
        if self._workers.are_here:
            return 1
        return max(1, int(self._ray.cluster_resources().get(RESOURCE, 0)))

    def start(self) -> Any:
        """Requests a new actor; see `ActorBackend.start`."""
        actor = self._type.remote(self._threads, *self._args)
        self._started.append(actor)
        return actor

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        """Calls a method of an actor; see `ActorBackend.call`."""
        return getattr(worker, method).remote(*args)

    def wait(self, calls: Sequence[Any], timeout_secs: float) -> list[Any]:
        """Waits for calls to end; see `ActorBackend.wait`.

        Raises:
            SearchError: Ray's process on this computer has died.
        """
        if not calls:
            time.sleep(timeout_secs)
        first = self._ray.wait(list(calls), timeout=timeout_secs)[0] if calls else []
        # Check before Ray does: it would end this process without a message some seconds later.
        if self._raylet is not None and wait_until_readable(self._raylet.fileno(), 0.0):
            raise SearchError(
                "Ray has died on this computer (its process 'raylet'): call again; a search with a "
                "log_dir resumes"
            )
        if not first:
            return []
        ended, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return list(ended)

    def result(self, call: Any) -> Any:
        """Returns the result of a call; see `ActorBackend.result`."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            is_plain = isinstance(cause, RuntimeError | ValueError)
            text = str(cause) if is_plain else f"{type(cause).__name__}: {cause}"
            raise WorkerLostError(text, has_failed=True) from None
        except errors.RayActorError as error:
            raise WorkerLostError(_extract_cause(str(error))) from None
        except errors.RayError as error:
            raise WorkerLostError(str(error).strip().splitlines()[0]) from None

    def kill(self, worker: Any) -> None:
        """Kills an actor; see `ActorBackend.kill`."""
        with contextlib.suppress(ValueError):
            self._started.remove(worker)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker)

    def close(self) -> None:
        """Kills all actors; see `ActorBackend.close`."""
        for worker in list(self._started):
            self.kill(worker)
        if self._raylet is not None:
            self._raylet.close()
            self._raylet = None


def _connect_to_raylet(ray: Any) -> socket.socket | None:
    """Opens a socket that ends when Ray's process on this computer dies; None if there is none."""
    node = getattr(getattr(ray, "_private", None), "worker", None)
    path = getattr(getattr(node, "_global_node", None), "raylet_socket_name", None)
    if not path:
        return None  # A client of a cluster has no such process.
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    return connection


def _extract_cause(text: str) -> str:
    """Extracts the cause from Ray's long message about the death of an actor."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    because = [line for line in lines if "because" in line or "node" in line.lower()[:12]]
    return " ".join((because or lines or ["it died"])[0].split())[:160].rstrip(".")


def _make_actor_type(worker_type: type) -> type:
    """Makes the class of a worker's actor."""

    class Actor(worker_type):
        def __init__(self, threads: str | None, *args: Any) -> None:
            # Ray sets the variable, and TensorFlow would take it for a setting of the user. Restore
            # the value of the process that searches.
            os.environ.pop(_THREADS_VARIABLE, None)
            if threads is not None:
                os.environ[_THREADS_VARIABLE] = threads
            super().__init__(*args)

    # Ray names the process after the class.
    Actor.__name__ = Actor.__qualname__ = worker_type.__name__
    return Actor
