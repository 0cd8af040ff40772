"""The server processes of a machine such as `local:N`: each device is a process on its cores."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import pathlib
import selectors
import socket
import time
from types import TracebackType

from absl import logging

from graph_passes.util.messages import quote
from tf_placer.interpreter import is_notebook
from tf_placer.machines.machine import Machine
from tf_placer.private_network import PrivateNetwork, describe_open_servers, is_private
from tf_placer.processes import (
    ChildDied,
    ChildProcess,
    ChildTimeout,
    await_message,
    environment_without_gpus,
)
from tf_placer.temporary_directory import temporary_directory

__all__ = ["LocalCluster", "LocalClusterError"]

_START_TIMEOUT_SECS = 120.0


class LocalClusterError(RuntimeError):
    """A server could not be started or died; the message names it and the reason."""


class LocalCluster:
    """Starts and stops the TensorFlow servers of a machine `local:N`, `numa` or `cores:0/1`.

    Every server is a process pinned to its share of the cores. It computes on as many threads as
    cores, under the memory limit of its device if the kind of machine has one, and without GPUs.
    Sessions connect to task 0 through `target`. The servers die with this process.

    The measuring process opens its sessions from outside the servers, like a user's script: both
    use the same interface, a crash of the client differs from a crash of a device, and a session
    that hangs in task 0 does not block the measuring process. The cost is one gRPC round trip per
    step. Measured with `local:2` on two cores, a step that computes almost nothing takes 0.06 ms
    from inside task 0 and 0.27 ms from outside; on a training step of 180 ms the difference is lost
    in the noise.

    Attributes:
        targets: "grpc://localhost:PORT", the address of each task.
        servers: the server processes by task.

    Example:
        with LocalCluster(find_machine("local:2")) as cluster:
            with tf.compat.v1.Session(cluster.target, graph=placed_graph) as session:
                session.run(train_op)
    """

    def __init__(
        self,
        machine: Machine,
        port: int | None = None,
        *,
        log_dir: str | None = None,
        network: PrivateNetwork | None = None,
        open_reason: str | None = None,
    ) -> None:
        """Starts the processes without waiting for them; see `wait_until_ready`.

        Args:
            machine: a machine whose kind `starts_servers`.
            port: the port of task 0; None for a free port. Other tasks always use free ports.
            log_dir: an existing directory for the logs of the servers; a temporary one when None.
            network: a private network for the servers; None for the network of this process. If
                that is not private, other users can reach the servers, and a warning says so.
            open_reason: the reason in the warning; None if the sessions come from this process,
                which was there before the servers.

        Raises:
            ValueError: the machine is not local, or the port is invalid.
            LocalClusterError: the port is in use.
        """
        _check_arguments(machine, port)
        self._cleanup = contextlib.ExitStack()
        self._files = self._cleanup.enter_context(contextlib.ExitStack())
        try:
            if log_dir is None:
                log_dir = self._files.enter_context(temporary_directory())
            # Choose new ports every time: clients may still connect to ports of an earlier cluster.
            ports = _choose_ports(port, len(machine.devices), is_new_network=network is not None)
            if network is None and not is_private():
                remedies = []
                if open_reason is None:
                    # No browser reaches a notebook in a private network.
                    command = "a script" if is_notebook() else "the command that runs now"
                    remedies.append(
                        f"`python -m tf_placer serve {machine.spec} -- COMMAND`, with {command}, "
                        "keeps others out"
                    )
                servers = f"the servers of {machine.spec}"
                logging.warning("%s", describe_open_servers(servers, open_reason, *remedies))
            self.targets = [f"grpc://localhost:{port}" for port in ports]
            self.servers: list[ChildProcess] = []
            for task, device in enumerate(machine.devices):
                environ = environment_without_gpus()
                environ["no_grpc_proxy"] = "localhost"
                if machine.backend.limits_memory and device.memory_bytes is not None:
                    environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
                    environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(device.memory_bytes // 2**20)
                server = ChildProcess(
                    f"task {task}",
                    "tf_placer.machines.local_server",
                    {"task": task, "ports": ports, "cores": device.cores},
                    log_path=pathlib.Path(log_dir, f"task_{task}.log"),
                    environ=environ,
                    network=network,
                )
                self._cleanup.callback(server.stop)
                self.servers.append(server)
        except BaseException:
            self._cleanup.close()
            raise

    @property
    def target(self) -> str:
        """The address of task 0, where sessions connect."""
        return self.targets[0]

    @property
    def spec(self) -> str:
        """The running servers as a machine of `find_machine`, with all addresses."""
        return "grpc://" + ",".join(target.removeprefix("grpc://") for target in self.targets)

    def wait_until_ready(self) -> None:
        """Waits until every server answers.

        Raises:
            LocalClusterError: a server died or does not answer.
        """
        deadline = time.monotonic() + _START_TIMEOUT_SECS
        for server in self.servers:
            try:
                await_message(server, (), deadline)
            except ChildDied as death:
                tail = server.log_tail() or "it wrote nothing; is there room in memory and on disk?"
                raise LocalClusterError(f"{death} while it started: {tail}") from None
            except ChildTimeout:
                raise LocalClusterError(
                    f"{server.name} did not start within {_START_TIMEOUT_SECS:g} s: "
                    f"{server.log_tail()}"
                ) from None

    def wait(self, timeout_secs: float | None = None) -> None:
        """Waits until a server dies.

        Args:
            timeout_secs: the time limit, after which it returns; None for no limit.

        Raises:
            LocalClusterError: a server died.
        """
        with selectors.DefaultSelector() as selector:
            for server in self.servers:
                selector.register(server, selectors.EVENT_READ, server)
            for key, _ in selector.select(timeout_secs):
                raise LocalClusterError(f"{key.data.exit_description()}: {key.data.log_tail()}")

    def close(self) -> None:
        """Stops the servers."""
        self._cleanup.close()

    def keep_until_exit(self) -> None:
        """Keeps the servers alive until this process ends; only their files are removed at exit.

        For sessions and functions, which TensorFlow ends after all Python objects.
        """
        # Without this reference, Python would delete the cluster before TensorFlow is done.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
        atexit.register(self._files.close)

    def __enter__(self) -> LocalCluster:
        """Waits until the servers are ready; stops them if that fails."""
        try:
            self.wait_until_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _check_arguments(machine: object, port: object) -> None:
    """Checks the arguments of `LocalCluster`."""
    if not isinstance(machine, Machine):
        what = quote(machine)
        raise ValueError(
            f"a local cluster needs a Machine, such as find_machine returns, not {what}"
        )
    if not machine.backend.starts_servers:
        raise ValueError(
            "a local cluster needs a machine of worker processes, such as 'local:N', not "
            f"{machine.spec!r}"
        )
    if port is None:
        return
    if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
        raise ValueError(f"a port is a whole number from 1 to 65535, not {quote(port)}")


def _choose_ports(first: int | None, count: int, *, is_new_network: bool) -> list[int]:
    """Chooses different free ports; in a new network every port is free."""
    with contextlib.ExitStack() as listeners:
        ports = [] if first is None else [first]
        if first is not None and not is_new_network:
            _hold_port(listeners, first)
        while len(ports) < count:
            port = _hold_port(listeners, 0)
            if port not in ports:
                ports.append(port)
        return ports


def _hold_port(listeners: contextlib.ExitStack, port: int) -> int:
    """Holds a port until the stack is closed; 0 chooses a free port."""
    listener = listeners.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # Accept ports with connections of an earlier listener that are still in TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("", port))
    except OSError as error:
        raise LocalClusterError(f"cannot listen on port {port}: {error.strerror}") from None
    return int(listener.getsockname()[1])
