"""Profiles a graph on the devices of a machine that is there."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from graph_passes.pipeline import GroupedGraph
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.profiled import profiled_costs
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.environments.step_profile import StepProfile
from tf_placer.errors import SearchError
from tf_placer.inputs.step import Step
from tf_placer.machines.machine import Device, Machine
from tf_placer.placers import make_placer

__all__ = ["profile_graph"]

_HOME = "/job:localhost/replica:0/task:0/device:CPU:0"
_DROPPED = 2
_TIMEOUT_SECS = 300.0


def profile_graph(
    graph_path: str | os.PathLike[str],
    step: Step,
    grouped: GroupedGraph,
    machine: Machine,
    *,
    steps: int = 10,
    session_config: tf.compat.v1.ConfigProto | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    timeout_secs: float = _TIMEOUT_SECS,
    known_secs: Mapping[tuple[int, ...], float] | None = None,
) -> OperationCosts:
    """Traces steps on one device of each kind and takes the costs from them.

    The operations of a "local" machine are traced in a session of their own with one thread for
    operations, on the cores of the device: in the server, operations that run at the same time
    take turns on a core, and each would be charged for the others. What the server adds to a step
    is in the time of a whole step there.

    Args:
        graph_path: file with the GraphDef.
        step: what a step of it runs.
        grouped: the graph and its groups.
        machine: an attached or local machine or a cluster.
        steps: how many steps to trace on each kind of device; two more run before.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.
        timeout_secs: seconds that each trace may take.
        known_secs: by placement, a device index per group, seconds of a step that was measured on
            the machine already.

    Returns:
        The costs of the graph's operations on each device.

    Raises:
        SearchError: no step could be traced on some kind of device.
        WorkerStartError: the processes do not start.
    """
    profiler = _Profiler(
        graph_path, step, grouped, machine, steps, session_config, work_dir, timeout_secs
    )
    kinds: dict[tuple[str, int], tuple[StepProfile, float | None]] = {}
    for d, device in enumerate(machine.devices):
        kind = (device.type, len(device.cores))
        if kind not in kinds:
            logging.info("profiling the graph on %s", device.name)
            kinds[kind] = profiler.on_device(d, known_secs or {})
    found = [kinds[device.type, len(device.cores)] for device in machine.devices]
    return profiled_costs(
        grouped.op_graph, [profile for profile, _ in found], [secs for _, secs in found]
    )


class _Profiler:
    """What the profiles of one graph on one machine share."""

    def __init__(
        self,
        graph_path: str | os.PathLike[str],
        step: Step,
        grouped: GroupedGraph,
        machine: Machine,
        steps: int,
        session_config: tf.compat.v1.ConfigProto | None,
        work_dir: str | os.PathLike[str] | None,
        timeout_secs: float,
    ) -> None:
        self._timeout_secs = timeout_secs
        self._graph_path = pathlib.Path(graph_path)
        self._step = step
        self._grouped = grouped
        self._machine = machine
        self._protocol = MeasuringProtocol(steps + _DROPPED, _DROPPED)
        self._session_config = session_config
        self._work_dir = work_dir
        self._names = tuple(device.name for device in machine.devices)
        self._legal = grouped.grouping.legal_devices(grouped.colocation, self._names)

    def on_device(
        self, d: int, known_secs: Mapping[tuple[int, ...], float]
    ) -> tuple[StepProfile, float | None]:
        """Profiles one device.

        Args:
            d: its number.
            known_secs: steps that were measured already, by placement.

        Returns:
            The profile, and the seconds of a whole step on the machine where they differ from
            those of the profile.
        """
        device = self._machine.devices[d]
        if self._machine.kind != "local":
            with self._environment(self._machine, self._session_config) as environment:
                return self._trace(environment, d), None
        config = tf.compat.v1.ConfigProto()
        if self._session_config is not None:
            config.CopyFrom(self._session_config)
        config.intra_op_parallelism_threads = max(1, len(device.cores))
        config.inter_op_parallelism_threads = 1
        config.device_count["GPU"] = 0
        alone = Machine(
            self._machine.spec, "attached", (Device(_HOME, "CPU", None, device.cores),), ()
        )
        everywhere = dict.fromkeys(self._grouped.op_graph.names, "")
        with self._environment(alone, config) as environment:
            profile = self._checked(environment.trace(everywhere), device)
        known = known_secs.get(tuple(self._all_on(d).tolist()))
        if known is not None:
            return profile, known
        with self._environment(self._machine, self._session_config) as environment:
            [measurement] = environment.measure(self._all_on(d)[None])
        if measurement.median_secs is None:
            logging.warning(
                "a step does not run on %s alone, so the costs are those of one process: %s",
                device.name,
                measurement.failure and measurement.failure.message,
            )
        return profile, measurement.median_secs

    def _trace(self, environment: SessionEnvironment, d: int) -> StepProfile:
        """Traces a step on one device or, where it does not fit, spread over those of its kind."""
        device = self._machine.devices[d]
        answer = environment.trace(self._assignment(self._all_on(d)))
        if isinstance(answer, Failure) and answer.kind is FailureKind.OUT_OF_MEMORY:
            alike = np.array([other.type == device.type for other in self._machine.devices])
            fits = (self._legal & alike).any(axis=1, keepdims=True)
            legal = np.where(fits, self._legal & alike, self._legal)
            spread = make_placer("expert", self._grouped.group_graph, legal)
            for placement in spread.propose(1 << 10):
                answer = environment.trace(self._assignment(placement))
                if not isinstance(answer, Failure):
                    break
        return self._checked(answer, device)

    def _checked(self, answer: StepProfile | Failure, device: Device) -> StepProfile:
        if isinstance(answer, Failure):
            raise SearchError(
                f"no step of the graph could be traced on {device.name}: {answer.message}"
            )
        return answer

    def _all_on(self, d: int) -> np.ndarray:
        """Puts all on device d, and what may not go there on the first: int32 [num_groups]."""
        return np.where(self._legal[:, d], d, self._legal.argmax(axis=1)).astype(np.int32)

    def _assignment(self, placement: np.ndarray) -> dict[str, str]:
        return self._grouped.assignment(placement, self._names)

    def _environment(
        self, machine: Machine, config: tf.compat.v1.ConfigProto | None
    ) -> SessionEnvironment:
        return SessionEnvironment(
            self._graph_path,
            self._step,
            machine,
            self._assignment,
            protocol=self._protocol,
            timeout_secs=self._timeout_secs,
            session_config=config,
            work_dir=self._work_dir,
        )
