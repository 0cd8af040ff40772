"""The processes of a live environment: starts, requests, restarts and failures."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from tf_placer import emulated
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.failures import classify_death, count_oom_kills, lacks_memory
from tf_placer.environments.in_process_worker import InProcessWorker
from tf_placer.environments.worker_fork_server import release_fork_server, start_fork_server
from tf_placer.fork_server import ForkServer
from tf_placer.machines.cluster_machine import check_reachable
from tf_placer.machines.cluster_return import await_cluster, find_silence_reason
from tf_placer.machines.local_cluster import LocalCluster, LocalClusterError
from tf_placer.machines.machine import Machine, MachineError
from tf_placer.private_network import NetworkError, PrivateNetwork, is_private
from tf_placer.processes import (
    Child,
    ChildDied,
    ChildProcess,
    ChildTimeout,
    await_message,
    environment_with_gpus,
    environment_without_gpus,
)
from tf_placer.text.units import format_bytes

__all__ = ["LiveProcesses", "WorkerStartError"]


@dataclasses.dataclass(frozen=True)
class _ProcessLimits:
    """Limits of time and attempts for starting and stopping processes.

    A start is repeated once after any failure, and once more if a signal ended or stopped a
    process, because then the process is not at fault. A client may learn that a server is gone
    before the death of the server is noticed, hence `death_notice_secs`. A worker that does not
    close its sessions within `close_timeout_secs` is replaced together with the servers.
    TensorFlow waits 10 s for memory at each operation that lacks some, even where it can do without
    the operation, hence `memory_patience_secs` after the first.
    """

    start_timeout_secs: float = 300.0
    max_starts: int = 2
    max_starts_after_signal: int = 3
    death_notice_secs: float = 2.0
    close_timeout_secs: float = 10.0
    memory_patience_secs: float = 10.0


_LIMITS = _ProcessLimits()


class WorkerStartError(RuntimeError):
    """An error that says why the processes that run sessions could not be started."""


class _MemoryExhausted(Exception):
    """An error that names a server which has run out of its memory, and the limit."""


class _MemoryCheck:
    """A check, while a request runs, for servers that wait in vain for memory."""

    def __init__(self, limits: Mapping[ChildProcess, int]) -> None:
        """Prepares the check.

        Args:
            limits: the memory of each server in bytes.
        """
        self._limits = limits
        self._patience_ends: dict[ChildProcess, float] = {}

    def __call__(self) -> None:
        """Raises `_MemoryExhausted` if a server ran out of memory and the request still runs."""
        for server, limit_bytes in self._limits.items():
            if server not in self._patience_ends:
                if not any(lacks_memory(line) for line in server.log_lines()):
                    continue
                self._patience_ends[server] = time.monotonic() + _LIMITS.memory_patience_secs
            if time.monotonic() >= self._patience_ends[server]:
                raise _MemoryExhausted(f"{server.name} ran out of its {format_bytes(limit_bytes)}")


class LiveProcesses:
    """The worker that runs sessions and, on a local machine, the servers of the sessions.

    Attributes:
        machine: the machine on which sessions run.
        generation: number of times that processes were started.
    """

    def __init__(
        self,
        machine: Machine,
        directory: str | os.PathLike[str],
        host: int | None = None,
        *,
        report: Callable[[str], None] = logging.warning,
    ) -> None:
        """Prepares the processes without starting any.

        Args:
            machine: the machine on which sessions run.
            directory: an existing directory for the logs of the processes.
            host: file descriptor of a `WorkerHost`, in whose process sessions run on an attached
                machine; None for a process of their own.
            report: called with a message for users when dead processes are started again.
        """
        self.machine = machine
        self._report = report
        self._directory = pathlib.Path(directory)
        self._host = host
        self._worker: Child | None = None
        self._cluster: LocalCluster | None = None
        # The worker and the servers of a local machine share a network that nobody else reaches.
        self._network: PrivateNetwork | None = None
        self._open_reason = ""
        # Forks the worker, unless that has failed.
        self._template: ForkServer | None = None
        self._start_afresh = False
        # Names of the loaded graphs, and whether the worker is connected to the servers.
        self._loaded: set[str] = set()
        self._is_connected = False
        # True if the servers of a remote cluster may be gone.
        self._is_target_doubted = False
        self.generation = 0

    def launch(self) -> None:
        """Starts missing processes without waiting for them.

        They import TensorFlow in the background.

        Raises:
            WorkerStartError: the remote cluster does not answer.
        """
        self._check_target()
        needs_cluster = self._lacks_servers()
        if self._worker is None or needs_cluster:
            self.generation += 1
            self._is_connected = False
        if needs_cluster:
            if self._worker is None and self._network is None:
                self._make_network()
            self._cluster = LocalCluster(
                self.machine,
                log_dir=str(self._directory),
                network=self._network,
                open_reason=self._open_reason,
            )
        if self._worker is None:
            forks = self.machine.backend.starts_servers and not self._start_afresh
            self._worker = self._start_worker(self._get_template() if forks else None)
            self._loaded.clear()

    def _get_template(self) -> ForkServer:
        """Returns a working fork server, a new one if the last was ended or stopped."""
        if self._template is not None and not self._template.is_fit():
            self._drop_template()
        if self._template is None:
            self._template = start_fork_server(self._directory / "template.log")
        return self._template

    def _drop_template(self) -> None:
        if self._template is not None:
            release_fork_server(self._template)
            self._template = None

    def _make_network(self) -> None:
        if is_private():
            return
        try:
            self._network = PrivateNetwork()
        except NetworkError as error:
            self._open_reason = str(error)

    def start(self, load: Mapping[str, Any]) -> None:
        """Makes sure that all processes run and that the worker has loaded a graph.

        Args:
            load: the command that loads the graph.

        Raises:
            WorkerStartError: the processes do not start, even after retries.
        """
        if self.are_running() and self._is_connected and load["graph"] in self._loaded:
            return
        dead = [child for child in self.children() if not child.is_alive()]
        if dead:
            self._report(f"{dead[0].exit_description()} between two trials: starting it again")
            self.stop()
        for attempt in range(1, _LIMITS.max_starts_after_signal + 1):
            try:
                self._start_once(load)
                return
            except (LocalClusterError, ChildDied, ChildTimeout) as error:
                self._prepare_next_start(error, attempt)
            except BaseException:
                self.stop()
                raise

    def _prepare_next_start(self, error: Exception, attempt: int) -> None:
        """Stops the processes of a failed start and chooses the kind of the next start.

        Raises:
            WorkerStartError: no attempt is left.
        """
        was_signaled = self._was_signaled()
        if attempt >= (_LIMITS.max_starts_after_signal if was_signaled else _LIMITS.max_starts):
            tail = error.child.log_tail() if isinstance(error, ChildDied) else ""
            self.stop()
            raise WorkerStartError(
                f"the workers do not start: {error}{': ' if tail else ''}{tail}"
            ) from None
        self._report(f"the workers did not start, trying once more: {error}")
        self.stop()
        if not was_signaled:
            # If the fork server fails, start processes from scratch.
            self._drop_template()
            self._start_afresh = True

    def _was_signaled(self) -> bool:
        """Says whether a process that did not start was ended or stopped by a signal."""
        if self._template is not None and self._template.has_failed():
            # Processes of a failed fork server vanish, too, which looks like a signal.
            return False
        return any(child.is_stopped() or (child.exit_code or 0) < 0 for child in self.children())

    def are_running(self) -> bool:
        """Says whether all processes that a request needs run."""
        missing = self._worker is None or self._lacks_servers()
        return not missing and all(child.is_alive() for child in self.children())

    def _lacks_servers(self) -> bool:
        return self.machine.backend.starts_servers and self._cluster is None

    def _check_target(self) -> None:
        if not self.machine.backend.is_remote:
            return
        try:
            if self._is_target_doubted:
                await_cluster(self.machine, self._report)
                self._is_target_doubted = False
            else:
                check_reachable(self.machine.target)
        except MachineError as error:
            raise WorkerStartError(str(error)) from None

    def attribute_failure(self, failure: Failure) -> Failure:
        """Attributes a failure that stopped the processes to the placement or to the cluster.

        If the cluster no longer answers, a time-out counts as the death of a worker.
        """
        if not self.machine.backend.is_remote:
            return failure
        if failure.kind is FailureKind.WORKER_DIED:
            self._is_target_doubted = True
        elif (
            failure.kind is FailureKind.TIMEOUT
            and (why := find_silence_reason(self.machine)) is not None
        ):
            self._is_target_doubted = True
            return Failure(FailureKind.WORKER_DIED, f"{failure.message}: {why}")
        return failure

    def _start_once(self, load: Mapping[str, Any]) -> None:
        self.launch()
        worker = self._worker
        assert worker is not None
        deadline = time.monotonic() + _LIMITS.start_timeout_secs
        target = self.machine.target if self._cluster is None else self._cluster.target
        if isinstance(worker, InProcessWorker):
            worker.wait_until_ready()
        # The worker imports TensorFlow and the graph while the servers start.
        commands = []
        if not self._is_connected:
            commands.append({"command": "connect", "target": target})
        if load["graph"] not in self._loaded:
            commands.append({**load, "command": "load"})
        for command in commands:
            worker.send(command, deadline)
        if self._cluster is not None and not self._is_connected:
            self._cluster.wait_until_ready()
        answers: list[dict[str, Any]] = []
        while len(answers) < len(commands):
            answers += await_message(worker, self._servers(), deadline)
        if answers and "refused" in answers[-1]:
            raise WorkerStartError(f"the graph cannot be run: {answers[-1]['refused']}")
        self._is_connected = True
        self._loaded.add(load["graph"])
        self._start_afresh = False

    def _start_worker(self, template: ForkServer | None) -> Child:
        if self._host is not None:
            return InProcessWorker(self._host)
        environ, backend = self._build_environment(), self.machine.backend
        if backend.starts_servers:
            environ["no_grpc_proxy"] = "localhost"
            # Sessions in the worker itself run in their own threads, on the given cores.
            environ["TF_OVERRIDE_GLOBAL_THREADPOOL"] = "1"
        return ChildProcess(
            "the worker",
            "tf_placer.environments.worker",
            # The servers of a local machine pin themselves.
            {"cores": list(self.machine.devices[0].cores) if backend.in_one_process else []},
            log_path=self._directory / "worker.log",
            environ=environ,
            network=self._network,
            fork_server=template,
        )

    def _build_environment(self) -> dict[str, str]:
        """Builds the environment variables of the worker, which gets the GPUs of the machine.

        Raises:
            WorkerStartError: the plugin for emulated GPUs cannot be built.
        """
        if not self.machine.backend.in_one_process:
            return environment_without_gpus()
        if not self.machine.backend.is_described:
            return environment_with_gpus()
        try:
            return emulated.make_environment(self.machine)
        except (ImportError, OSError) as error:
            raise WorkerStartError(str(error)) from None

    def restart(self) -> None:
        """Makes the next request start fresh device processes, each from scratch.

        On a local machine these are the servers. The worker stays, as it only talks to them.
        """
        if not self.machine.backend.starts_servers:
            self.stop()
        if self._cluster is None or self._worker is None:
            return  # No servers run, so there is nothing to replace.
        deadline = time.monotonic() + _LIMITS.close_timeout_secs
        try:
            self._worker.send({"command": "close_sessions"}, deadline)
            await_message(self._worker, self._servers(), deadline)
        except (ChildDied, ChildTimeout):
            self.stop()
            return
        self._cluster.close()
        self._cluster = None

    def unload(self, graph: str) -> None:
        """Unloads a graph and its sessions from the worker, ignoring failures."""
        if graph not in self._loaded or not self.are_running():
            return
        self._loaded.discard(graph)
        deadline = time.monotonic() + _LIMITS.close_timeout_secs
        assert self._worker is not None
        try:
            self._worker.send({"command": "unload", "graph": graph}, deadline)
            await_message(self._worker, self._servers(), deadline)
        except (ChildDied, ChildTimeout):
            self.stop()

    def request(
        self,
        load: Mapping[str, Any],
        command: Mapping[str, Any],
        timeout_secs: float,
        stage: str,
    ) -> dict[str, Any] | Failure:
        """Sends a command to the worker and waits for its answer, starting missing processes.

        Args:
            load: the command that loads the graph of this command.
            command: the command to send.
            timeout_secs: limit in seconds, not counting the start of processes.
            stage: the stage to name in failures until the worker reports one.

        Returns:
            The worker's answer, or a failure after a time-out or the death of a process. After a
            failure the processes are stopped, and the next request starts new ones.

        Raises:
            WorkerStartError: the processes do not start.
        """
        self.start(load)
        worker = self._worker
        assert worker is not None
        for child in self.children():
            child.clear_log()
        oom_kills = count_oom_kills()
        deadline = time.monotonic() + timeout_secs
        check_memory = _MemoryCheck(self._find_memory_limits())
        try:
            worker.send({**command, "graph": load["graph"]}, deadline)
            while True:
                for message in await_message(worker, self._servers(), deadline, check_memory):
                    if "stage" not in message:
                        self._raise_if_a_server_died(message)
                        return message
                    stage = message["stage"]
        except ChildTimeout:
            failure = Failure(
                FailureKind.TIMEOUT, f"no result within {timeout_secs:g} s, still in {stage}"
            )
        except _MemoryExhausted as exhausted:
            failure = Failure(FailureKind.OUT_OF_MEMORY, f"in {stage}, {exhausted}")
        except ChildDied as death:
            failure = classify_death(death, stage, count_oom_kills() - oom_kills)
        self.stop()
        return failure

    def _raise_if_a_server_died(self, answer: Mapping[str, Any]) -> None:
        """Raises `ChildDied` if an answer reports a lost connection because a server died."""
        error = answer.get("error")
        if not error or error["type"] not in ("UnavailableError", "AbortedError"):
            return
        if self._cluster is None:
            return
        try:
            self._cluster.wait(_LIMITS.death_notice_secs)
        except LocalClusterError:
            for server in self._servers():
                if not server.is_alive():
                    raise ChildDied(server) from None

    @property
    def targets(self) -> list[str]:
        """The addresses of the servers on this machine; empty without servers."""
        return [] if self._cluster is None else self._cluster.targets

    def children(self) -> list[Child]:
        """Lists the processes that were not stopped: the worker, then the servers by task."""
        worker: list[Child] = [] if self._worker is None else [self._worker]
        return [*worker, *self._servers()]

    def _servers(self) -> list[ChildProcess]:
        return [] if self._cluster is None else self._cluster.servers

    def _find_memory_limits(self) -> dict[ChildProcess, int]:
        """Maps the servers that refuse tensors beyond a limit to that limit in bytes."""
        if not self.machine.backend.limits_memory:
            return {}
        pairs = zip(self._servers(), self.machine.devices, strict=True)
        return {server: each.memory_bytes for server, each in pairs if each.memory_bytes}

    def close(self) -> None:
        """Stops all processes and the fork server."""
        self.stop()
        self._drop_template()

    def stop(self) -> None:
        """Stops all processes that run sessions; the next request starts new ones."""
        if self._template is not None and self._template.is_stopped():
            # A stopped fork server does not report the ends of its processes.
            self._drop_template()
        if self._worker is not None:
            self._worker.stop()
            self._worker = None
        self._loaded.clear()
        self._is_connected = False
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        if self._network is not None:
            self._network.close()
            self._network = None
