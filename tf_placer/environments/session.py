"""Measures placements live: real steps of a TensorFlow session in processes of their own."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tf_placer.costs.step_profile import OperationTimes, StepProfile
from tf_placer.environments.environment import Failure, FailureKind, Measurement
from tf_placer.environments.failures import failure_of_error, may_have_harmed
from tf_placer.environments.live_processes import LiveProcesses, WorkerStartError
from tf_placer.environments.tensor_file import read_tensors, write_tensors
from tf_placer.machine import Machine
from tf_placer.step import Step

__all__ = [
    "COLOCRL",
    "EAGLE",
    "POST",
    "MeasuringProtocol",
    "SessionEnvironment",
    "WorkerStartError",
]


@dataclasses.dataclass(frozen=True)
class MeasuringProtocol:
    """How many steps a measurement takes.

    Attributes:
        steps: how many steps run after the initialisers.
        dropped: how many of them, the first ones, are warm-up and not counted.

    Raises:
        ValueError: no step would be counted.
    """

    steps: int
    dropped: int

    def __post_init__(self) -> None:
        if not 0 <= self.dropped < self.steps:
            raise ValueError(
                f"of {self.steps} steps, {self.dropped} cannot be dropped: at least one must count"
            )


COLOCRL = MeasuringProtocol(steps=10, dropped=1)
"""10 steps of which the first is dropped, as ColocRL measures."""
POST = MeasuringProtocol(steps=11, dropped=1)
"""11 steps of which the first is dropped, as Post measures."""
EAGLE = MeasuringProtocol(steps=15, dropped=5)
"""15 steps of which the first 5 are dropped, as EAGLE measures."""


class SessionEnvironment:
    """Times the steps of a graph under placements, in sessions on a machine.

    A measurement opens a fresh session, runs the initialisers, runs `protocol.dropped` steps that
    do not count and then the counted ones, each timed with a monotonic clock around one call of
    the session. Exactly `protocol.steps` steps run. Variables do not outlive the session.

    Sessions run in a worker process, on a "local" machine as a client of one server process per
    device. The processes start with the first measurement and serve all that follow. After a
    failure that may have harmed them (a time-out, a death, no memory left) they are stopped, and
    the next measurement starts fresh ones. Whatever a placement does ends as a `Failure`.

    Attributes:
        timeout_secs: seconds that a measurement may take, from the session's start to its end.
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
    ) -> None:
        """Prepares the environment; starts no process yet.

        Args:
            graph_path: a GraphDef file (".pb").
            step: what a step fetches, feeds and needs initialised.
            machine: where to run.
            assign: turns a placement, int32 [num_groups] with a device index per group, into full
                device names by operation name. Operations that it leaves out keep the device that
                they have in the file.
            protocol: how many steps run and count.
            timeout_secs: seconds that a measurement may take.
            session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
            meta_optimizer: whether Grappler optimises the graph as in the user's sessions. Without
                it a measurement costs less and every operation runs where it was put.
            work_dir: directory for logs and exchange files, made if missing; the system's temporary
                directory when None. They go when the environment is closed.

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
        self._directory = tempfile.TemporaryDirectory(
            prefix="session_", dir=work_dir, ignore_cleanup_errors=True
        )
        directory = pathlib.Path(self._directory.name)
        write_tensors(directory / "feeds", step.feeds)
        config = b"" if session_config is None else session_config.SerializeToString()
        (directory / "session_config").write_bytes(config)
        self._values_path = directory / "values"
        self._processes = LiveProcesses(
            machine,
            {
                "graph": os.path.abspath(graph_path),
                "fetches": list(step.fetches),
                "initializers": list(step.initializers),
                "feeds": str(directory / "feeds"),
                "session_config": str(directory / "session_config"),
                "meta_optimizer": meta_optimizer,
                "isolate": machine.kind != "attached",
                # The servers of a local machine pin themselves.
                "cores": list(machine.devices[0].cores) if machine.kind == "attached" else [],
            },
            directory,
        )
        self._closed = False

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements one after the other.

        Args:
            placements: int32 [num_placements, num_groups], a device index per group.

        Returns:
            One measurement per placement; a failure is a measurement, too.

        Raises:
            WorkerStartError: the processes do not start, which is no placement's fault.
        """
        return [self.measure_assignment(self._assign(placement)) for placement in placements]

    def measure_assignment(self, assignment: Mapping[str, str]) -> Measurement:
        """Measures the graph with the given devices.

        Args:
            assignment: full device names by operation name; empty for the graph as it came.

        Returns:
            Step times or a failure.

        Raises:
            WorkerStartError: the processes do not start, which is no placement's fault.
        """
        start = time.perf_counter()
        answer = self._request(
            {
                "command": "measure",
                "assignment": dict(assignment),
                "steps": self._protocol.steps,
                "dropped": self._protocol.dropped,
            }
        )
        if isinstance(answer, Failure):
            return Measurement(failure=answer, setup_secs=time.perf_counter() - start)
        return Measurement(tuple(answer["step_secs"]), setup_secs=answer["setup_secs"])

    def fetched_values(
        self, assignment: Mapping[str, str], steps: int = 2
    ) -> dict[str, np.ndarray] | Failure:
        """What a few steps compute under the given devices, to compare it between placements.

        It runs a copy of the graph in which every random operation without a seed has one, made
        from its name. Under any two placements the copy computes the same values, up to rounding.

        Args:
            assignment: full device names by operation name; empty for the graph as it came.
            steps: how many steps to run.

        Returns:
            The fetched tensors of each step, "loss:0@1" for the first, and after the last step
            every variable that the step needs, by the name of its operation, up to 256 MiB in all;
            or why there are none.

        Raises:
            WorkerStartError: the processes do not start, which is no placement's fault.
        """
        answer = self._request(
            {
                "command": "values",
                "assignment": dict(assignment),
                "steps": steps,
                "path": str(self._values_path),
            }
        )
        if isinstance(answer, Failure):
            return answer
        values = read_tensors(self._values_path)
        self._values_path.unlink()
        return values

    def trace(self, assignment: Mapping[str, str]) -> StepProfile | Failure:
        """Times steps under the given devices, and traces what every operation does in them.

        Args:
            assignment: full device names by operation name; "" lets TensorFlow choose.

        Returns:
            What the steps took and what the operations did, or why there is nothing.

        Raises:
            WorkerStartError: the processes do not start, which is no placement's fault.
        """
        answer = self._request(
            {
                "command": "trace",
                "assignment": dict(assignment),
                "steps": self._protocol.steps,
                "dropped": self._protocol.dropped,
            }
        )
        return answer if isinstance(answer, Failure) else StepProfile.from_json(answer)

    def time_each(self, fetches: Sequence[str]) -> list[OperationTimes] | Failure:
        """Times operations of the graph as it came, each alone, taking turns.

        Args:
            fetches: names of operations.

        Returns:
            What each takes, or why that is not known.

        Raises:
            WorkerStartError: the processes do not start.
        """
        self._check_open()
        # The ids of the processes are part of the request.
        self._processes.start()
        processes = self.process_ids()
        answer = self._request(
            {
                "command": "time_each",
                "fetches": list(fetches),
                "rounds": self._protocol.steps,
                "dropped": self._protocol.dropped,
                "processes": list(processes.values()),
            }
        )
        if isinstance(answer, Failure):
            return answer
        return [
            OperationTimes(
                tuple(times["secs"]), dict(zip(processes, times["cpu_secs"], strict=True))
            )
            for times in answer["times"]
        ]

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the environment is closed")

    def _request(self, command: Mapping[str, Any]) -> dict[str, Any] | Failure:
        self._check_open()
        answer = self._processes.request(
            {**command, "timeout_secs": self.timeout_secs}, self.timeout_secs
        )
        if isinstance(answer, Failure) or "error" not in answer:
            return answer
        error = answer["error"]
        failure = failure_of_error(
            error["type"], error["message"], error["stage"], error["steps_done"]
        )
        if failure.kind is FailureKind.TIMEOUT:
            failure = Failure(failure.kind, f"{failure.message} ({self.timeout_secs:g} s)")
        if may_have_harmed(failure, error["type"]):
            self._processes.stop()
        return failure

    def process_ids(self) -> dict[str, int]:
        """The ids of the running processes by name: "the worker", "task 0", "task 1", ..."""
        return {child.name: child.pid for child in self._processes.children()}

    def restart(self) -> None:
        """Lets the next measurement run in fresh processes."""
        self._processes.stop()

    def close(self) -> None:
        """Stops all processes and removes all files."""
        self._processes.stop()
        self._directory.cleanup()
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
