"""What measures on a machine of its own: the same trials as a search without workers."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import socket
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.op_graph import OpGraph
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.environment import Measurement
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.sources import Source
from tf_placer.inputs.step import Step
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.scratch import scratch_directory
from tf_placer.search.distributed.fleet import Greeting
from tf_placer.search.log_header import package_versions

__all__ = ["MeasuringWorker", "Setup"]

# Where placements are measured alone, nothing tells how slow the machine is: after so many of them
# the graph as it came is measured again.
_ALONE_TRIALS = 10


@dataclasses.dataclass(frozen=True)
class Setup:
    """What all workers of a search measure.

    Attributes:
        graph: a serialized GraphDef.
        step: what a step of it runs.
        machine: the machine of the search; that of a worker must have the same devices.
        session_config: the serialized ConfigProto of the user's sessions.
    """

    graph: bytes
    step: Step
    machine: Machine
    session_config: bytes


class MeasuringWorker:
    """Measures placements on the machine that it runs on, beside the graph as it came.

    Its sessions run in processes of their own, as those of a search without workers do. They end
    with this process, however that ends.
    """

    def __init__(self, setup: Setup) -> None:
        """Starts no process yet.

        Args:
            setup: what is measured.
        """
        self._setup = setup
        # Workers are killed: what they leave is removed with the directory of their Ray, or at the
        # next start.
        self._files = contextlib.ExitStack()
        self._directory = self._files.enter_context(scratch_directory())
        self._graph = pathlib.Path(self._directory, "graph.pb")
        self._graph.write_bytes(setup.graph)
        self._config = tf.compat.v1.ConfigProto.FromString(setup.session_config)
        self._machine: Machine | None = None
        self._sessions: SessionEnvironment | None = None
        self._paired: PairedEnvironment | None = None
        self._confirming: SessionEnvironment | None = None
        self._trials_alone = 0

    def ping(self) -> bool:
        """Answers, also while something else runs."""
        return True

    def begin(self, timeout_secs: float) -> Greeting:
        """Starts the processes and measures the graph as it came.

        Args:
            timeout_secs: how long the measurement may take.

        Raises:
            MachineError, WorkerStartError: the machine is not that of the search, or its processes
                do not start.
        """
        self._machine = self._find_machine()
        self._sessions = self._environment(timeout_secs, meta_optimizer=False)
        self._paired = PairedEnvironment(self._sessions, dict, best_secs=lambda: self._best_secs)
        self._best_secs: float | None = None
        original = self._paired.measure_original()
        return Greeting(socket.gethostname(), os.getpid(), package_versions(), original)

    def measure(
        self, assignment: Mapping[str, str], best_secs: float | None, timeout_secs: float
    ) -> tuple[Measurement, float | None]:
        """Measures a placement.

        Args:
            assignment: full device names by operation name.
            best_secs: what the fastest placement so far takes, in the seconds of this machine.
            timeout_secs: how long it may take.

        Returns:
            The measurement; and what a step of the graph as it came takes on this machine, None
            where it does not run.
        """
        sessions, paired = self._begun()
        self._best_secs = best_secs
        sessions.timeout_secs = timeout_secs
        measurement = paired.measure_assignment(assignment)
        if measurement.reference_secs is None and paired.reference_secs is not None:
            self._trials_alone += 1
            if self._trials_alone % _ALONE_TRIALS == 0:
                self.measure_original(timeout_secs)
        return measurement, paired.reference_secs

    def measure_original(self, timeout_secs: float) -> float | None:
        """Measures the graph as it came again.

        Args:
            timeout_secs: how long it may take.

        Returns:
            What a step of it takes now, in seconds; None where it does not run.
        """
        sessions, paired = self._begun()
        sessions.timeout_secs = timeout_secs
        steps = sessions.measure_assignment({}).step_secs
        if steps is None:
            return None
        if paired.reference_secs is not None and self._trials_alone:
            paired.reference_secs = statistics.median(steps)
        return statistics.median(steps)

    def profile(
        self,
        steps: int,
        granularity: str,
        known_secs: Mapping[tuple[int, ...], float],
        timeout_secs: float,
    ) -> PlacementProblem:
        """Finds out what the operations of the graph cost on this machine.

        Args:
            steps: how many steps to trace on each kind of device.
            granularity: how fine the groups of the graph are.
            known_secs: by placement, what a step was measured to take.
            timeout_secs: how long each trace may take; links are measured where all of it leaves
                time for that.

        Raises:
            SearchError, WorkerStartError: the graph cannot be profiled.
        """
        sessions, _ = self._begun()
        sessions.timeout_secs = timeout_secs
        step = self._setup.step
        graph_def = tf.compat.v1.GraphDef.FromString(self._setup.graph)
        op_graph = OpGraph.from_graph_def(graph_def, step.fetches, step.feeds)
        assert self._machine is not None
        return cost_graph(
            Source(op_graph, step),
            self._machine,
            steps=steps,
            granularity=granularity,
            session_config=self._config,
            work_dir=self._directory,
            environment=sessions,
            max_secs=timeout_secs,
            known_secs=known_secs,
        ).problem()

    def confirm(
        self, method: str, timeout_secs: float, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """Does one thing of a confirmation, in sessions like those of the user.

        Args:
            method: name of the method of `SessionEnvironment`.
            timeout_secs: how long it may take.
            args: its arguments.
            options: its arguments by name.

        Returns:
            What the method returns.
        """
        if self._confirming is None:
            self.release()
            self._machine = self._machine or self._find_machine()
            self._confirming = self._environment(timeout_secs, meta_optimizer=True)
        self._confirming.timeout_secs = timeout_secs
        return getattr(self._confirming, method)(*args, **options)

    def release(self) -> None:
        """Stops all processes, so that others have the machine for themselves."""
        for environment in (self._sessions, self._confirming):
            if environment is not None:
                environment.stop()

    def _begun(self) -> tuple[SessionEnvironment, PairedEnvironment]:
        if self._sessions is None or self._paired is None:
            raise RuntimeError("the worker has not begun")
        return self._sessions, self._paired

    def _find_machine(self) -> Machine:
        """Finds the devices of this machine.

        Raises:
            MachineError: they cannot be listed.
            WorkerStartError: they are others than those of the search.
        """
        wanted = self._setup.machine
        found = find_machine(wanted.spec, self._config)
        if _devices(found) != _devices(wanted):
            raise WorkerStartError(
                f"{socket.gethostname()} has other devices than the machine of the search: "
                f"{', '.join(_devices(found))} instead of {', '.join(_devices(wanted))}"
            )
        return found

    def _environment(self, timeout_secs: float, *, meta_optimizer: bool) -> SessionEnvironment:
        assert self._machine is not None
        return SessionEnvironment(
            self._graph,
            self._setup.step,
            self._machine,
            dict,
            session_config=self._config,
            meta_optimizer=meta_optimizer,
            work_dir=self._directory,
            timeout_secs=timeout_secs,
        )


def _devices(machine: Machine) -> list[str]:
    return [f"{device.name} ({device.type})" for device in machine.devices]
