"""The worker that measures trials on a machine of its own, as a search without workers does."""

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
from graph_passes.restrictions import Restrictions
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.alone import AloneEnvironment
from tf_placer.environments.environment import Measurement
from tf_placer.environments.live_processes import WorkerStartError
from tf_placer.environments.measuring_protocol import COLOCRL, MeasuringProtocol
from tf_placer.environments.paired import PairedEnvironment
from tf_placer.environments.session import SessionEnvironment
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import Workload
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.search.distributed.actor_backend import WorkerInfo
from tf_placer.search.log_header import package_versions
from tf_placer.temporary_directory import temporary_directory

__all__ = ["MeasuringSetup", "MeasuringWorker"]

# A placement that is measured alone does not show how slow the machine is, so measure the original
# graph again from time to time.
_ALONE_TRIALS_PER_REFERENCE = 10


@dataclasses.dataclass(frozen=True)
class MeasuringSetup:
    """The arguments that all workers of a search share.

    Attributes:
        graph: a serialized GraphDef.
        step: the step to measure.
        machine: the machine of the search; that of a worker must have the same devices.
        session_config: the serialized ConfigProto of the user's sessions.
        restrictions: the restrictions of the user on placements; None for none.
        alone_protocol: the protocol of placements that are alone in a session; None for turns with
            the original.
    """

    graph: bytes
    step: Step
    machine: Machine
    session_config: bytes
    restrictions: Restrictions | None = None
    alone_protocol: MeasuringProtocol | None = None


class MeasuringWorker:
    """Measures placements on its machine, by the protocol of the search.

    Its sessions run in separate processes, as those of a search without workers do. The processes
    end with this one, however it ends.
    """

    def __init__(self, setup: MeasuringSetup) -> None:
        """Starts no process yet.

        Args:
            setup: the graph, step and machine.
        """
        self._setup = setup
        # A worker is killed without cleaning up. Its files are removed with Ray's directory, or at
        # the next start.
        self._files = contextlib.ExitStack()
        self._directory = self._files.enter_context(temporary_directory())
        self._graph = pathlib.Path(self._directory, "graph.pb")
        self._graph.write_bytes(setup.graph)
        self._config = tf.compat.v1.ConfigProto.FromString(setup.session_config)
        self._machine: Machine | None = None
        self._sessions: SessionEnvironment | None = None
        self._trials: AloneEnvironment | PairedEnvironment | None = None
        self._confirming: SessionEnvironment | None = None
        self._trials_alone = 0

    def ping(self) -> bool:
        """Returns true, even while another method runs."""
        return True

    def begin(self, timeout_secs: float) -> WorkerInfo:
        """Starts the processes and measures the original graph.

        Args:
            timeout_secs: time limit of the measurement.

        Raises:
            MachineError, WorkerStartError: the machine has other devices than that of the search,
                or its processes do not start.
        """
        self._machine = self._find_machine()
        protocol = self._setup.alone_protocol
        self._sessions = self._environment(timeout_secs, protocol or COLOCRL, meta_optimizer=False)
        self._best_secs: float | None = None
        if protocol is not None:
            self._trials = AloneEnvironment(self._sessions, dict)
        else:
            self._trials = PairedEnvironment(
                self._sessions, dict, best_secs=lambda: self._best_secs
            )
        original = self._trials.measure_original()
        return WorkerInfo(socket.gethostname(), os.getpid(), package_versions(), original)

    def measure(
        self, assignment: Mapping[str, str], best_secs: float | None, timeout_secs: float
    ) -> tuple[Measurement, float | None]:
        """Measures a placement.

        Args:
            assignment: full device names by operation name.
            best_secs: step time of the fastest placement so far, scaled to this machine.
            timeout_secs: time limit of the measurement.

        Returns:
            The measurement; and the step time of the original graph on this machine, None if it
            does not run.
        """
        sessions, trials = self._get_environments()
        self._best_secs = best_secs
        sessions.timeout_secs = timeout_secs
        measurement = trials.measure_assignment(assignment)
        if measurement.reference_secs is None and trials.reference_secs is not None:
            self._trials_alone += 1
            if self._trials_alone % _ALONE_TRIALS_PER_REFERENCE == 0:
                self.measure_original(timeout_secs)
        return measurement, trials.reference_secs

    def measure_original(self, timeout_secs: float) -> float | None:
        """Measures the original graph again.

        Args:
            timeout_secs: time limit of the measurement.

        Returns:
            The median step time in seconds; None if the graph does not run.
        """
        sessions, trials = self._get_environments()
        sessions.timeout_secs = timeout_secs
        steps = sessions.measure_assignment({}).step_secs
        if steps is None:
            return None
        if trials.reference_secs is not None and self._trials_alone:
            trials.reference_secs = statistics.median(steps)
        return statistics.median(steps)

    def profile(
        self,
        steps: int,
        granularity: str,
        known_secs: Mapping[tuple[int, ...], float],
        timeout_secs: float,
    ) -> PlacementProblem:
        """Profiles the costs of the graph's operations on this machine.

        Args:
            steps: the number of steps to trace on each kind of device.
            granularity: granularity of the groups.
            known_secs: measured step times by placement.
            timeout_secs: time limit of each trace; links are measured if enough time is left.

        Raises:
            SearchError, WorkerStartError: the graph cannot be profiled.
        """
        sessions, _ = self._get_environments()
        sessions.timeout_secs = timeout_secs
        step = self._setup.step
        graph_def = tf.compat.v1.GraphDef.FromString(self._setup.graph)
        op_graph = OpGraph.from_graph_def(graph_def, step.fetches, step.feeds)
        assert self._machine is not None
        return cost_graph(
            Workload(op_graph, step),
            self._machine,
            steps=steps,
            granularity=granularity,
            session_config=self._config,
            work_dir=self._directory,
            environment=sessions,
            max_secs=timeout_secs,
            known_secs=known_secs,
            restrictions=self._setup.restrictions,
        ).problem()

    def confirm(
        self, method: str, timeout_secs: float, args: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        """Calls a method for a confirmation, in sessions configured like those of the user.

        Args:
            method: name of the method of `SessionEnvironment`.
            timeout_secs: time limit.
            args: its positional arguments.
            options: its keyword arguments.

        Returns:
            The result of the method.
        """
        if self._confirming is None:
            self.release()
            self._machine = self._machine or self._find_machine()
            self._confirming = self._environment(timeout_secs, COLOCRL, meta_optimizer=True)
        self._confirming.timeout_secs = timeout_secs
        return getattr(self._confirming, method)(*args, **options)

    def release(self) -> None:
        """Stops all processes, to leave the machine to others."""
        for environment in (self._sessions, self._confirming):
            if environment is not None:
                environment.stop()

    def _get_environments(
        self,
    ) -> tuple[SessionEnvironment, AloneEnvironment | PairedEnvironment]:
        if self._sessions is None or self._trials is None:
            raise RuntimeError("the worker has not begun")
        return self._sessions, self._trials

    def _find_machine(self) -> Machine:
        """Finds the devices of this machine.

        Raises:
            MachineError: the devices cannot be listed.
            WorkerStartError: the devices differ from those of the search.
        """
        wanted = self._setup.machine
        found = find_machine(wanted.spec, self._config)
        if _devices(found) != _devices(wanted):
            raise WorkerStartError(
                f"{socket.gethostname()} has other devices than the machine of the search: "
                f"{', '.join(_devices(found))} instead of {', '.join(_devices(wanted))}"
            )
        return found

    def _environment(
        self, timeout_secs: float, protocol: MeasuringProtocol, *, meta_optimizer: bool
    ) -> SessionEnvironment:
        assert self._machine is not None
        return SessionEnvironment(
            self._graph,
            self._setup.step,
            self._machine,
            dict,
            protocol=protocol,
            session_config=self._config,
            meta_optimizer=meta_optimizer,
            work_dir=self._directory,
            timeout_secs=timeout_secs,
        )


def _devices(machine: Machine) -> list[str]:
    return [f"{device.name} ({device.type})" for device in machine.devices]
