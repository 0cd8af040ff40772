"""Workers as actors of Ray. Nothing else imports Ray, which is an extra of the package."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tf_placer.descriptors import wait_until_readable
from tf_placer.errors import SearchError
from tf_placer.search.distributed.fleet import WorkerLostError
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

__all__ = ["RayFleet", "connected"]

# What Ray sets for its actors, and what TensorFlow would take for the user's wish.
_THREADS = "OMP_NUM_THREADS"
# An actor that measures has all GPUs of its machine: Ray is told to hide none. One that computes
# beside the search must not take their memory from it.
_ACTOR_ENVIRONMENT = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
_NEAR_ENVIRONMENT = {**_ACTOR_ENVIRONMENT, "CUDA_VISIBLE_DEVICES": "-1"}


def _environment(workers: Workers, own: OwnCluster | None) -> dict[str, str]:
    """Finds the environment variables of Ray by which it connects to some workers.

    Ray that is started here asks for a token that only this process and its descendants know, or
    for the user's. A process has one token, because Ray reads it once.

    Args:
        workers: which ones.
        own: the cluster of this user on this computer, if these are its workers.
    """
    if workers.are_here:
        token = os.environ.get("RAY_AUTH_TOKEN") or secrets.token_hex(32)
        asked = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        return {**QUIET_ENVIRONMENT, **LOOPBACK_ENVIRONMENT, **asked}
    return {**QUIET_ENVIRONMENT, **(own.environment if own else {})}


def _own(workers: Workers) -> OwnCluster | None:
    """Finds the cluster of this user on this computer; None where the workers are others."""
    own = find_own_cluster()
    # Ray takes "auto" for its own variable first.
    is_auto = workers.address == "auto" and not os.environ.get("RAY_ADDRESS")
    return own if own is not None and (is_auto or workers.address == own.address) else None


@contextlib.contextmanager
def connected(workers: Workers) -> Iterator[None]:
    """Connects this process to Ray, which is started on this computer where that is asked for.

    Ray that is started here listens on the loopback alone, asks for a token, and ends with this
    process.

    Raises:
        ImportError: Ray is not installed.
        SearchError: there is nothing to connect to, or Ray does not start.
    """
    require_ray()
    own = _own(workers)
    os.environ.update(_environment(workers, own))
    import ray

    with contextlib.ExitStack() as stack:
        # Ray that looks for a cluster by itself may find that of another search here.
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
            with _variable("TMPDIR", private):
                # Workers are killed, and leave what they have there.
                _init(ray, workers, options)
        else:
            _init(ray, workers, options)
        stack.callback(ray.shutdown)
        yield


def _init(ray: Any, workers: Workers, options: dict[str, Any]) -> None:
    # Ray's own handler prints pages when the process is ended; what Ray has started ends anyway.
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM) if is_main else None
    try:
        ray.init(log_to_driver=False, logging_level="ERROR", namespace="tf_placer", **options)
    except Exception as error:
        first = str(error).strip().splitlines() or [type(error).__name__]
        raise SearchError(
            f"cannot connect to workers={workers.address!r}: {first[0]}. `python -m tf_placer "
            "cluster start` starts a cluster on this computer; RAY_AUTH_TOKEN must be its token"
        ) from None
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Gives processes that are started meanwhile another value of an environment variable."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


class RayFleet:
    """Starts actors of a class; see `Fleet`.

    There is one for each machine that has room for a worker, or as many as are wanted beside the
    search.
    """

    def __init__(
        self, workers: Workers, worker_type: type, *args: Any, is_near: bool = False
    ) -> None:
        """Starts nothing yet; this process must be connected.

        Args:
            workers: how many are wanted.
            worker_type: the class of the workers, in a module that all machines have.
            args: what workers are made with; sent to each machine once.
            is_near: whether they run on the computer that is connected, without its GPUs, and not
                where there is room to measure.
        """
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self._ray: Any = ray
        self._workers = workers
        self._args = [ray.put(arg) for arg in args]
        self._type: Any = ray.remote(_actor_type(worker_type)).options(
            num_cpus=0,
            resources={} if is_near else {RESOURCE: 1},
            max_restarts=0,
            max_task_retries=0,
            # One that measures can still answer.
            max_concurrency=2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            if is_near
            else "SPREAD",
            runtime_env={"env_vars": _NEAR_ENVIRONMENT if is_near else _ACTOR_ENVIRONMENT},
        )
        self._threads = os.environ.get(_THREADS)
        self._started: list[Any] = []
        self._raylet = _line_to_raylet(ray)

    def wanted(self) -> int:
        """Counts how many workers there should be; see `Fleet.wanted`."""
        if self._workers.count is not None:
            return self._workers.count
        if self._workers.are_here:
            return 1
        return max(1, int(self._ray.cluster_resources().get(RESOURCE, 0)))

    def start(self) -> Any:
        """Begins to start an actor; see `Fleet.start`."""
        actor = self._type.remote(self._threads, *self._args)
        self._started.append(actor)
        return actor

    def call(self, worker: Any, method: str, *args: Any) -> Any:
        """Calls a method of an actor; see `Fleet.call`."""
        return getattr(worker, method).remote(*args)

    def ended(self, calls: Sequence[Any], timeout_secs: float) -> list[Any]:
        """Waits for calls to end; see `Fleet.ended`.

        Raises:
            SearchError: Ray's process on this computer has died.
        """
        if not calls:
            time.sleep(timeout_secs)
        first = self._ray.wait(list(calls), timeout=timeout_secs)[0] if calls else []
        # Ray waits for some seconds, and then ends this process without a word.
        if self._raylet is not None and wait_until_readable(self._raylet.fileno(), 0.0):
            raise SearchError(
                "Ray has died on this computer (its process 'raylet'): call again; what has a "
                "log_dir goes on where it was"
            )
        if not first:
            return []
        all_ended, _ = self._ray.wait(list(calls), num_returns=len(calls), timeout=0)
        return list(all_ended)

    def result(self, call: Any) -> Any:
        """Gives what a call returned; see `Fleet.result`."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None) or error
            is_plain = isinstance(cause, RuntimeError | ValueError)
            text = str(cause) if is_plain else f"{type(cause).__name__}: {cause}"
            raise WorkerLostError(text, has_failed=True) from None
        except errors.RayActorError as error:
            raise WorkerLostError(_why_dead(str(error))) from None
        except errors.RayError as error:
            raise WorkerLostError(str(error).strip().splitlines()[0]) from None

    def kill(self, worker: Any) -> None:
        """Ends an actor; see `Fleet.kill`."""
        with contextlib.suppress(ValueError):
            self._started.remove(worker)
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(worker)

    def close(self) -> None:
        """Ends all actors; see `Fleet.close`."""
        for worker in list(self._started):
            self.kill(worker)
        if self._raylet is not None:
            self._raylet.close()
            self._raylet = None


def _line_to_raylet(ray: Any) -> socket.socket | None:
    """Opens a line whose end is the death of Ray's process here; None where Ray has none."""
    node = getattr(getattr(ray, "_private", None), "worker", None)
    path = getattr(getattr(node, "_global_node", None), "raylet_socket_name", None)
    if not path:
        return None  # As a client of a cluster.
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(path)
    except OSError:
        line.close()
        return None
    return line


def _why_dead(text: str) -> str:
    """Picks from Ray's page about a death the sentence that says why."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    because = [line for line in lines if "because" in line or "node" in line.lower()[:12]]
    return " ".join((because or lines or ["it died"])[0].split())[:160].rstrip(".")


def _actor_type(worker_type: type) -> type:
    """Makes a worker an actor of Ray."""

    class Worker(worker_type):
        def __init__(self, threads: str | None, *args: Any) -> None:
            # As in the process that searches, and not what Ray sets.
            os.environ.pop(_THREADS, None)
            if threads is not None:
                os.environ[_THREADS] = threads
            super().__init__(*args)

    # What its process is called.
    Worker.__name__ = Worker.__qualname__ = worker_type.__name__
    return Worker
