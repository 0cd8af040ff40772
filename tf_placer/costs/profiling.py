"""Profiles a graph on the devices of a real machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from absl import logging

from graph_passes.pipeline import GroupedGraph
from graph_passes.util.messages import plain_text
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.profiled import compute_profiled_costs
from tf_placer.environments.environment import Failure, FailureKind
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.environments.session import SessionEnvironment
from tf_placer.environments.step_profile import StepProfile
from tf_placer.errors import SearchError
from tf_placer.machines.machine import Device, Machine
from tf_placer.placers import make_placer

__all__ = ["profile_graph"]

_WARM_UP_STEPS = 2


def profile_graph(
    environment: SessionEnvironment,
    grouped: GroupedGraph,
    machine: Machine,
    *,
    steps: int = 10,
    known_secs: Mapping[tuple[int, ...], float] | None = None,
) -> OperationCosts:
    """Computes operation costs from steps traced on one device of each kind.

    The operations of a "local" machine are traced in the worker, in a session with one thread for
    operations, on the cores of the device: in the server, concurrent operations take turns on a
    core, and each would be charged for the others. The time of a whole step in the server includes
    the server's overhead.

    Args:
        environment: runs steps of the graph on the machine.
        grouped: the graph and its groups.
        machine: an attached or local machine or a cluster.
        steps: number of steps to trace on each kind of device, after two warm-up steps.
        known_secs: by placement, a device index per group, seconds of a step that was already
            measured on the machine.

    Returns:
        The costs of the graph's operations on each device.

    Raises:
        SearchError: no step could be traced on some kind of device.
        WorkerStartError: the processes do not start.
    """
    profiler = _Profiler(environment, grouped, machine, steps)
    kinds: dict[object, tuple[StepProfile, float | None]] = {}
    for d, device in enumerate(machine.devices):
        kind = _find_kind(device)
        if kind not in kinds:
            logging.info("profiling the graph on %s", device.name)
            kinds[kind] = profiler.profile_device(d, known_secs or {})
    found = [kinds[_find_kind(device)] for device in machine.devices]
    return compute_profiled_costs(
        grouped.op_graph, [profile for profile, _ in found], [secs for _, secs in found]
    )


def _find_kind(device: Device) -> tuple[str, int, str | None, int]:
    """Finds a key that devices of the same speed share.

    TensorFlow does not tell the models of attached GPUs, but most models differ in their GiB.
    """
    gibibytes = round((device.memory_bytes or 0) / 2**30) if device.type == "GPU" else 0
    return device.type, len(device.cores), device.model, gibibytes


class _Profiler:
    """Profiles one graph on the devices of one machine."""

    def __init__(
        self,
        environment: SessionEnvironment,
        grouped: GroupedGraph,
        machine: Machine,
        steps: int,
    ) -> None:
        self._environment = environment
        self._grouped = grouped
        self._machine = machine
        self._protocol = MeasuringProtocol(steps + _WARM_UP_STEPS, _WARM_UP_STEPS)
        self._names = tuple(device.name for device in machine.devices)
        self._legal = grouped.grouping.legal_devices(grouped.colocation, self._names)

    def profile_device(
        self, d: int, known_secs: Mapping[tuple[int, ...], float]
    ) -> tuple[StepProfile, float | None]:
        """Profiles one device.

        Args:
            d: the index of the device.
            known_secs: see `profile_graph`.

        Returns:
            The profile, and the seconds of a whole step on the machine where they differ from
            the step time of the profile.
        """
        device = self._machine.devices[d]
        if not self._machine.backend.starts_servers:
            return self._trace(d, known_secs), None
        everywhere = dict.fromkeys(self._grouped.op_graph.names, "")
        answer = self._environment.trace(everywhere, self._protocol, alone_on=device.cores)
        profile = self._require_profile(answer, device)
        known = known_secs.get(tuple(self._place_all_on(d).tolist()))
        if known is not None:
            return profile, known
        measurement = self._environment.measure_assignment(
            self._build_assignment(self._place_all_on(d))
        )
        if measurement.median_secs is None:
            logging.warning(
                "a step does not run on %s alone, so the costs are those of one process: %s",
                device.name,
                plain_text(str(measurement.failure and measurement.failure.message)),
            )
        return profile, measurement.median_secs

    def _trace(self, d: int, known_secs: Mapping[tuple[int, ...], float]) -> StepProfile:
        """Traces a step on one device or, where it does not fit, on all devices of that kind.

        Where it does not fit on these either, it is traced on all devices of the same type.
        Running out of memory takes long, so placements that have run before are tried first.
        """
        device, devices = self._machine.devices[d], self._machine.devices
        alike = np.array([_find_kind(other) == _find_kind(device) for other in devices])
        same_type = np.array([other.type == device.type for other in devices])
        fits = (self._legal & alike).any(axis=1)
        on_one = tuple(self._place_all_on(d).tolist())
        if on_one not in known_secs:
            for row in (row for row in known_secs if alike[[*row]][fits].all()):
                answer = self._trace_placement(np.array(row, np.int32))
                if not isinstance(answer, Failure):
                    return answer
        answer = self._trace_placement(np.array(on_one, np.int32))
        for used in [alike] if (alike == same_type).all() else [alike, same_type]:
            if not isinstance(answer, Failure) or answer.kind is not FailureKind.OUT_OF_MEMORY:
                break
            fits = (self._legal & used).any(axis=1)
            legal = np.where(fits[:, None], self._legal & used, self._legal)
            spread = make_placer("expert", self._grouped.group_graph, legal)
            for placement in spread.propose(1 << 10):
                answer = self._trace_placement(placement)
                if not isinstance(answer, Failure):
                    break
        return self._require_profile(answer, device)

    def _trace_placement(self, placement: np.ndarray) -> StepProfile | Failure:
        return self._environment.trace(self._build_assignment(placement), self._protocol)

    def _require_profile(self, answer: StepProfile | Failure, device: Device) -> StepProfile:
        if isinstance(answer, Failure):
            raise SearchError(
                f"no step of the graph could be traced on {device.name}: {answer.message}"
            )
        return answer

    def _place_all_on(self, d: int) -> np.ndarray:
        """Places all groups on device d, or on the first legal device: int32 [num_groups]."""
        return np.where(self._legal[:, d], d, self._legal.argmax(axis=1)).astype(np.int32)

    def _build_assignment(self, placement: np.ndarray) -> dict[str, str]:
        return self._grouped.assignment(placement, self._names)
