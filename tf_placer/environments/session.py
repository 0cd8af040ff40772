"""Live measurements of placements: steps of TensorFlow sessions in separate processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
from absl import logging

from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.failures import classify_error, may_have_harmed
from tf_placer.environments.live_processes import LiveProcesses, WorkerStartError
from tf_placer.environments.measuring_protocol import COLOCRL, MeasuringProtocol
from tf_placer.environments.retry import run_with_retry
from tf_placer.environments.step_profile import OperationTimes, StepProfile
from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Machine
from tf_placer.temporary_directory import temporary_directory

__all__ = [
    "SessionEnvironment",
    "WorkerStartError",
]


# The label of the session of a measurement without the original beside it.
_ALONE = "alone"
# These commands take no time limit and report no stages, so their stage is named here.
_STAGES = {"run_steps": "the counted steps", "close_session": "closing the session"}


class SessionEnvironment:
    """Times the steps of a graph under placements, in sessions on a machine.

    A session is opened with the devices of a placement, runs the initializers and
    `protocol.dropped` steps that do not count. Then it runs steps on request, each timed with a
    monotonic clock around one call; several sessions can be open and take turns. A measurement
    opens its own session and runs the steps of the protocol. On a "local" machine without
    a limit of memory, sessions share the variables of graphs that have no other state, so that each
    is initialized once on each device.

    Sessions run in a worker process, on a "local" machine as a client of one server process per
    device. The processes start with the first session and serve all that follow. After a failure
    that may have harmed them (a time-out, a death, no memory left) they are stopped, and all
    sessions with them; the next request starts fresh ones. Every failure of a placement is returned
    as a `Failure`. If a process died or was stopped, the placement may not be at fault, so every
    request that needs no open session is repeated once.

    Attributes:
        timeout_secs: limit in seconds of a measurement, of opening a session and of running steps.
    """

    def __init__(
        self,
        graph_path: str | os.PathLike[str],
        step: Step,
        machine: Machine,
        assign: Callable[[np.ndarray], Mapping[str, str]],
        *,
        protocol: MeasuringProtocol = COLOCRL,
        timeout_secs: float = 120.0,
        session_config: Any = None,
        meta_optimizer: bool = False,
        work_dir: str | os.PathLike[str] | None = None,
        processes: LiveProcesses | None = None,
        report: Callable[[str], None] = logging.warning,
    ) -> None:
        """Prepares the environment; starts no process yet.

        Args:
            graph_path: a GraphDef file (".pb").
            step: fetches, feeds and initializers of a step.
            machine: the machine to run on.
            assign: turns a placement, int32 [num_groups] with a device index per group, into full
                device names by operation name. Operations that it leaves out keep the device that
                they have in the file.
            protocol: the numbers of steps of a measurement.
            timeout_secs: limit in seconds of a measurement.
            session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
            meta_optimizer: whether Grappler optimizes the graph as in the user's sessions. Without
                it a measurement costs less and every operation runs on its assigned device.
            work_dir: directory for logs and exchange files, made if missing; the system's temporary
                directory when None. The files are removed when the environment is closed.
            processes: processes of the machine, shared with other environments; None for its own.
            report: called with a message for users when dead processes are started again.

        Raises:
            ValueError: a fed value is not a tensor, or `timeout_secs` is not positive.
        """
        if timeout_secs <= 0:
            raise ValueError(f"timeout_secs must be positive, not {timeout_secs}")
        self.timeout_secs = timeout_secs
        self._assign = assign
        self._protocol = protocol
        if work_dir is not None:
            pathlib.Path(work_dir).mkdir(parents=True, exist_ok=True)
        # Removed by close(), or at the latest when this process ends.
        with contextlib.ExitStack() as stack:
            directory = pathlib.Path(stack.enter_context(temporary_directory(work_dir)))
            self._remove_files = weakref.finalize(self, stack.pop_all().close)
        tensors = {
            "feeds": step.feeds,
            "initializer_feeds": step.initializer_feeds,
            "restored": step.restored,
        }
        for name, values in tensors.items():
            write_tensors(directory / name, values)
        config = b"" if session_config is None else session_config.SerializeToString()
        (directory / "session_config").write_bytes(config)
        self._values_path = directory / "values"
        self._load: dict[str, Any] = {
            "graph": directory.name,
            "path": os.path.abspath(graph_path),
            "fetches": list(step.fetches),
            "initializers": list(step.initializers),
            "queue_runners": [runner.to_json() for runner in step.queue_runners],
            "tensors": {name: str(directory / name) for name in tensors},
            "session_config": str(directory / "session_config"),
            "meta_optimizer": meta_optimizer,
            "isolate": not machine.backend.in_one_process,
            # With scarce memory, the variables of closed sessions would take too much of it.
            "share_variables": machine.backend.shares_variables
            and all(device.memory_bytes is None for device in machine.devices),
        }
        self._owns_processes = processes is None
        self._processes = processes or LiveProcesses(machine, directory, report=report)
        self._report = report
        self._closed = False
        # Sessions live as long as the processes that they were opened in.
        self._sessions: set[tuple[int, str]] = set()

    @property
    def processes(self) -> LiveProcesses:
        """The processes that sessions run in, for others to share."""
        return self._processes

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.

        Returns:
            One measurement per placement, which may be a failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        return [self.measure_assignment(self._assign(placement)) for placement in placements]

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        """Measures the graph with the given devices.

        Args:
            assignment: full device names by operation name; empty for the original.

        Returns:
            Step times or a failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        return run_with_retry(lambda: self._measure_alone(assignment), self._report)

    def _measure_alone(self, assignment: Mapping[str, str]) -> Measurement:
        start = time.monotonic()
        setup_secs = self.open_session(_ALONE, assignment)
        if isinstance(setup_secs, Failure):
            return Measurement(failure=setup_secs, setup_secs=time.monotonic() - start)
        left_secs = self.timeout_secs - setup_secs
        step_secs = self.run_steps(_ALONE, self._protocol.counted, timeout_secs=left_secs)
        self.close_session(_ALONE)
        if isinstance(step_secs, Failure):
            return Measurement(failure=step_secs, setup_secs=time.monotonic() - start)
        return Measurement(step_secs, setup_secs=setup_secs)

    def open_session(self, label: str, assignment: Mapping[str, str]) -> float | Failure:
        """Opens a session that stays open and runs its warm-up steps; several can be open.

        Args:
            label: its name; an open session with this name is closed first.
            assignment: full device names by operation name; empty for the original.

        Returns:
            Its seconds, not counting the start of processes, or the failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        # The worker closes an earlier session with this label, even if the new one fails.
        self._sessions.discard((self._processes.generation, label))
        answer = self._request(
            {
                "command": "open_session",
                "label": label,
                "assignment": dict(assignment),
                "dropped": self._protocol.dropped,
            }
        )
        if isinstance(answer, Failure):
            return answer
        self._sessions.add((self._processes.generation, label))
        return float(answer["setup_secs"])

    def has_session(self, label: str) -> bool:
        """Says whether a session is open; stopped processes have no open sessions."""
        return self._processes.are_running() and self._is_known(label)

    def _is_known(self, label: str) -> bool:
        return (self._processes.generation, label) in self._sessions

    def run_steps(
        self, label: str, count: int, *, timeout_secs: float | None = None
    ) -> tuple[float, ...] | Failure:
        """Times steps of an open session.

        Args:
            label: the name of the session.
            count: number of steps to run, all of which count.
            timeout_secs: limit in seconds of all steps; that of a measurement when None.

        Returns:
            The seconds of each step, or the failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        self._check_open()
        # A process may have died since the last request.
        self._processes.start(self._load)
        if not self._is_known(label):
            message = f"the processes had to be started again, and the session {label!r} is lost"
            return Failure(FailureKind.WORKER_DIED, message)
        limit_secs = self.timeout_secs if timeout_secs is None else max(timeout_secs, 0.0)
        command = {"command": "run_steps", "label": label, "count": count}
        answer = self._request(command, limit_secs)
        return answer if isinstance(answer, Failure) else tuple(answer["step_secs"])

    def close_session(self, label: str) -> None:
        """Closes a session, if it is open."""
        if self.has_session(label):
            self._sessions.discard((self._processes.generation, label))
            self._request({"command": "close_session", "label": label})

    def fetch_values(
        self,
        assignment: Mapping[str, str],
        steps: int = 2,
        tensors: Sequence[str] = (),
        *,
        alone: bool = False,
    ) -> dict[str, np.ndarray] | Failure:
        """Fetches the values of a few steps, to compare them between placements.

        The steps run a copy of the graph in which every random operation without a seed gets one
        that depends on its name. Under any two placements the copy computes the same values, up to
        rounding.

        Args:
            assignment: full device names by operation name; empty for the original.
            steps: number of steps to run.
            tensors: names of additional tensors to fetch in each step.
            alone: whether the steps run in the worker itself, on the CPU of this computer, whose
                memory no device limits. The assignment must name no device there.

        Returns:
            The fetched tensors of each step, "loss:0@1" for the first, and after the last step
            every variable that the step needs, by the name of its operation, up to 256 MiB in all;
            or the failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        command = {
            "command": "values",
            "assignment": dict(assignment),
            "steps": steps,
            "path": str(self._values_path),
            "tensors": list(tensors),
            "alone": alone,
        }
        answer = run_with_retry(lambda: self._request(command), self._report)
        if isinstance(answer, Failure):
            return answer
        values = read_tensors(self._values_path)
        self._values_path.unlink()
        return values

    def trace(
        self,
        assignment: Mapping[str, str],
        protocol: MeasuringProtocol,
        *,
        alone_on: Sequence[int] | None = None,
    ) -> StepProfile | Failure:
        """Times steps under the given devices and traces their operations.

        Args:
            assignment: full device names by operation name; "" lets TensorFlow choose.
            protocol: the numbers of steps, the same with a trace and without.
            alone_on: cores on which the steps run in the worker itself, without GPUs and one
                operation at a time; None for the machine.

        Returns:
            The profile of the steps, or the failure.

        Raises:
            WorkerStartError: the processes do not start; no placement is at fault.
        """
        command = {
            "command": "trace",
            "assignment": dict(assignment),
            "steps": protocol.steps,
            "dropped": protocol.dropped,
            "alone_on": None if alone_on is None else list(alone_on),
        }
        answer = run_with_retry(lambda: self._request(command), self._report)
        return answer if isinstance(answer, Failure) else StepProfile.from_json(answer)

    def time_each(
        self, fetches: Sequence[str], *, enough_secs: float | None = None
    ) -> list[OperationTimes] | Failure:
        """Times operations of the original, each alone, taking turns.

        Args:
            fetches: names of operations.
            enough_secs: seconds after which few rounds are enough; None for all rounds.

        Returns:
            The times of each operation, or the failure.

        Raises:
            WorkerStartError: the processes do not start.
        """
        return run_with_retry(lambda: self._time_each_once(fetches, enough_secs), self._report)

    def _time_each_once(
        self, fetches: Sequence[str], enough_secs: float | None
    ) -> list[OperationTimes] | Failure:
        self._check_open()
        # The ids of the processes are part of the request.
        self._processes.start(self._load)
        processes = self.process_ids()
        answer = self._request(
            {
                "command": "time_each",
                "fetches": list(fetches),
                "rounds": self._protocol.steps,
                "dropped": self._protocol.dropped,
                "processes": list(processes.values()),
                **({} if enough_secs is None else {"enough_secs": enough_secs}),
            }
        )
        if isinstance(answer, Failure):
            return answer
        return [
            OperationTimes(
                tuple(times["secs"]),
                dict(zip(processes, map(tuple, times["cpu_secs"]), strict=True)),
            )
            for times in answer["times"]
        ]

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the environment is closed")

    def _request(
        self, command: Mapping[str, Any], limit_secs: float | None = None
    ) -> dict[str, Any] | Failure:
        self._check_open()
        timeout_secs = self.timeout_secs if limit_secs is None else limit_secs
        stage = _STAGES.get(command["command"])
        if stage is None:
            # The worker applies this limit to every single run.
            command = {**command, "timeout_secs": timeout_secs}
        answer = self._processes.request(
            self._load, command, timeout_secs, stage or "sending the placement"
        )
        if isinstance(answer, Failure):
            return self._processes.attribute_failure(answer)
        if "error" not in answer:
            return answer
        error = answer["error"]
        failure = classify_error(
            error["type"], error["message"], error["stage"], error["steps_done"]
        )
        if failure.kind is FailureKind.TIMEOUT:
            failure = Failure(failure.kind, f"{failure.message} ({timeout_secs:g} s)")
        if may_have_harmed(failure, error["type"]):
            self._processes.stop()
            return self._processes.attribute_failure(failure)
        return failure

    def process_ids(self) -> dict[str, int]:
        """Lists the ids of running processes by name: "the worker", "task 0", "task 1", ..."""
        return {child.name: child.pid for child in self._processes.children()}

    def restart(self) -> None:
        """Makes the next request run in fresh processes; open sessions are lost."""
        self._processes.restart()
        self._sessions.clear()

    def stop(self) -> None:
        """Stops all processes at once; the next request starts new ones."""
        self._processes.stop()
        self._sessions.clear()

    def close(self) -> None:
        """Stops the processes unless they are shared, and removes all files."""
        if self._owns_processes:
            self._processes.close()
            self._sessions.clear()
        else:
            self._processes.unload(self._load["graph"])
        self._remove_files()
        self._closed = True

    def __enter__(self) -> SessionEnvironment:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
