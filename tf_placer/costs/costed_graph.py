"""A graph with its groups and its costs on a machine."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.placement import Placement
from graph_passes.restricted_colocation import describe_restrictions
from graph_passes.restrictions import Restrictions
from tf_placer.costs.analytic import compute_analytic_costs
from tf_placer.costs.graph_memory import compute_variables_bytes
from tf_placer.costs.graph_problem import build_graph_problem
from tf_placer.costs.link_cache import find_links, keep_links
from tf_placer.costs.link_calibration import calibrate_links, set_default_links
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.original_devices import find_colocation_devices, find_requested_devices
from tf_placer.costs.profiling import profile_graph
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.inputs.given_devices import check_given_devices
from tf_placer.inputs.workload import Workload
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.computer_memory import read_computer_memory_bytes
from tf_placer.machines.emulated_machine import parse_emulation_options
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.units import format_age

__all__ = ["CostedGraph", "cost_graph", "estimate_costs"]

# A search has the original graph and a placement of it open while links are measured.
_OPEN_SESSIONS = 2
_MAX_LISTED_LOOPS = 4
# The devices of this machine stand in for devices whose speed is unknown.
_STAND_IN = "1xP100"


@dataclasses.dataclass(frozen=True)
class LinkTimeLimits:
    """The time for measuring the links of a machine.

    Attributes:
        min_left_secs: remaining time below which links are not measured.
        max_left_share: largest share of the remaining time for links.
        max_secs: seconds after which no measurement is expected to end.
        old_secs: age after which a line says how old a measurement is; younger ones are used
            without a word.
    """

    min_left_secs: float = 8.0
    max_left_share: float = 0.5
    max_secs: float = 60.0
    old_secs: float = 30 * 86400.0


_LINK_TIME = LinkTimeLimits()


@dataclasses.dataclass(frozen=True, eq=False)
class CostedGraph:
    """A graph with its groups and its costs on a machine.

    Attributes:
        grouped: the graph and its groups.
        machine: the machine, with the memory of its devices and with its links.
        costs: the costs of the graph's operations.
        name: what people call the graph; "" if that is not known.
    """

    grouped: GroupedGraph
    machine: Machine
    costs: OperationCosts
    name: str = ""

    def problem(self) -> PlacementProblem:
        """Builds the problem of placing the groups; fine groups come with their coarse groups."""
        grouped, coarse = self.grouped, self.grouped.coarse
        layered = coarse or grouped
        layered_groups = layered.grouping.expand_to_operations(layered.colocation)
        return build_graph_problem(
            grouped.op_graph,
            grouped.grouping.expand_to_operations(grouped.colocation),
            grouped.grouping.legal_devices(grouped.colocation, self._list_device_names()),
            self.machine,
            self.costs,
            None if coarse is None else layered_groups,
            layered.group_graph.layers[layered_groups],
            name=self.name,
        )

    def build_placed_problem(
        self, placement: Placement | None
    ) -> tuple[PlacementProblem, np.ndarray]:
        """Builds the problem of placing the colocation groups, and finds their devices.

        Args:
            placement: full device names by operation; None for the devices of the original graph.
                TensorFlow puts operations without a device on the first GPU if it has a kernel for
                them, else on the first CPU.

        Returns:
            The problem and int32 [num_groups], a device index for each of its groups.

        Raises:
            GraphError: the placement names a device that the machine does not have.
        """
        graph, colocation = self.grouped.op_graph, self.grouped.colocation
        requested = None
        if placement is not None:
            requested = find_requested_devices(graph, colocation, placement, self.machine.devices)
        chosen = find_colocation_devices(colocation, self.machine.devices, requested)
        legal = np.stack([colocation.legal[device.type] for device in self.machine.devices], axis=1)
        # Pinned operations may be on a device without a known kernel for them.
        legal[np.arange(len(chosen)), chosen] |= colocation.pinned
        problem = build_graph_problem(graph, colocation.group, legal, self.machine, self.costs)
        # Colocation groups without an operation in the problem have the highest numbers.
        return problem, chosen[: problem.num_groups].astype(np.int32)

    def _list_device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.machine.devices)


def cost_graph(
    workload: Workload,
    machine: Machine,
    *,
    steps: int,
    granularity: str = "coarse",
    session_config: tf.compat.v1.ConfigProto | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    timeout_secs: float = 300.0,
    max_secs: float = math.inf,
    known_secs: Mapping[tuple[int, ...], float] | None = None,
    environment: SessionEnvironment | None = None,
    processes: LiveProcesses | None = None,
    measure_links: bool = False,
    restrictions: Restrictions | None = None,
    report: Callable[[str], None] = logging.info,
) -> CostedGraph:
    """Determines the costs of a graph on a machine.

    Costs on real machines are measured; costs on described ones are computed. Where the kernels of
    emulated GPUs compute only shapes, the costs are computed, too, although the CPU is real.

    The links of a machine are measured once and then read from the user's cache directory. Links
    that cannot be measured, or that there is no time to measure, come from the machine's
    description or are the default of its kind; a message says so, and the cache is unchanged.

    Args:
        workload: the graph and its step.
        machine: the machine.
        steps: number of steps to trace on each kind of device.
        granularity: the granularity of the groups, as `group_operations` takes it.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.
        timeout_secs: time limit of each trace of the graph.
        max_secs: time limit of the whole call; decides whether links are measured.
        known_secs: by placement, a device index per group, seconds of a step that was already
            measured on the machine.
        environment: runs steps of the graph on the machine; a new one when None.
        processes: the processes of the machine for a new environment; new ones when None.
        measure_links: whether to measure links even if they are in the cache; then it is an error
            if they cannot be measured.
        restrictions: the restrictions of the user on placements; None for none.
        report: called with a line for people at each stage.

    Raises:
        GraphError: the graph is on devices that the machine lacks, or a restriction cannot be
            honored.
        ValueError: the granularity is unknown, or `measure_links` is set for a machine whose links
            cannot be measured.
        SearchError, WorkerStartError: the graph could not be run.
    """
    end_secs = time.monotonic() + max_secs
    report("grouping the operations")
    grouped = group_operations(workload.op_graph, granularity, restrictions)
    if restrictions is not None:
        for line in describe_restrictions(workload.op_graph, grouped.colocation, restrictions):
            report(line)
    soft = session_config is not None and session_config.allow_soft_placement
    check_given_devices(workload.op_graph, machine, workload.step.initializers, soft=soft)
    if machine.describes_costs:
        if measure_links:
            raise ValueError(
                f"the links of {machine.spec} are those of its description and cannot be measured: "
                "leave out measure_links"
            )
        costs = compute_analytic_costs(workload.op_graph, machine)
        if costs.unknown_sizes:
            report(_describe_unknown_sizes(costs.unknown_sizes))
        loops = costs.unknown_loops
        if loops:
            listed = ", ".join(loops[:_MAX_LISTED_LOOPS])
            listed += ", ..." if len(loops) > _MAX_LISTED_LOOPS else ""
            report(
                f"constants and shapes do not tell how often these loops run: {listed}; of each of "
                "them one iteration counts. Give maximum_iterations to tf.while_loop"
            )
        if machine.backend.is_timed:
            report(f"the costs are those that the description of {machine.spec} gives")
            machine, costs = _slow_down(
                machine, costs, parse_emulation_options(machine.spec).slowdown
            )
        return CostedGraph(grouped, machine, costs, workload.name)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(temporary_directory(work_dir))
        if environment is None:
            path = pathlib.Path(directory, "graph.pb")
            path.write_bytes(workload.graph_def.SerializeToString())
            environment = stack.enter_context(
                SessionEnvironment(
                    path,
                    workload.step,
                    machine,
                    lambda _: {},
                    timeout_secs=timeout_secs,
                    session_config=session_config,
                    work_dir=directory,
                    processes=processes,
                )
            )
        report(f"tracing {steps} steps of the graph on each kind of device of {machine.spec}")
        costs = profile_graph(environment, grouped, machine, steps=steps, known_secs=known_secs)
        if len(machine.devices) > 1:
            machine = _add_links(
                *(machine, session_config, directory, environment.processes, measure_links, report),
                held_bytes=_OPEN_SESSIONS * compute_variables_bytes(grouped.op_graph),
                left_secs=end_secs - time.monotonic(),
            )
    return CostedGraph(grouped, _set_unlimited_memory(machine), costs, workload.name)


def _describe_unknown_sizes(unknown: Sequence[str]) -> str:
    """Describes tensors of unknown size; the sizes of fed tensors are always known."""
    first = f"the size of {unknown[0]} depends"
    if len(unknown) > 1:
        first = f"the sizes of {len(unknown)} tensors, the first of them {unknown[0]}, depend"
    return (
        f"{first} on values that a step computes or reads: an unknown dimension counts as 1. If it "
        "is large, let the graph tell it, by tf.ensure_shape or by batches with "
        "drop_remainder=True"
    )


def estimate_costs(grouped: GroupedGraph, machine: Machine) -> CostedGraph:
    """Computes costs without running anything, for the memory of placements.

    Devices whose speed is unknown count as devices of the catalog, because the memory of a step
    depends on the order of its operations, and little on their durations.

    Args:
        grouped: the graph and its groups.
        machine: the machine, of any kind.
    """
    if not machine.backend.is_described:
        stand_in = make_described_machine(_STAND_IN)
        models = {device.type: device.model for device in stand_in.devices}
        devices = tuple(
            dataclasses.replace(device, model=models[device.type]) for device in machine.devices
        )
        machine = dataclasses.replace(machine, devices=devices, classes=stand_in.classes)
    if not machine.links:
        machine = set_default_links(machine)
    costs = compute_analytic_costs(grouped.op_graph, machine)
    return CostedGraph(grouped, _set_unlimited_memory(machine), costs)


def _slow_down(
    machine: Machine, costs: OperationCosts, slowdown: float
) -> tuple[Machine, OperationCosts]:
    """Multiplies the times of links and operations by a factor."""
    links = tuple(
        dataclasses.replace(
            link,
            latency_secs=slowdown * link.latency_secs,
            bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec / slowdown,
        )
        for link in machine.links
    )
    fixed_secs = None if costs.fixed_secs is None else slowdown * costs.fixed_secs
    costs = dataclasses.replace(
        costs, compute_secs=slowdown * costs.compute_secs, fixed_secs=fixed_secs
    )
    return dataclasses.replace(machine, links=links), costs


def _add_links(
    machine: Machine,
    session_config: tf.compat.v1.ConfigProto | None,
    directory: str,
    processes: LiveProcesses,
    measure_links: bool,
    report: Callable[[str], None],
    *,
    held_bytes: int,
    left_secs: float,
) -> Machine:
    """Adds the links of a machine, from the cache or else by measuring them.

    Args:
        machine: a machine without links.
        session_config: the ConfigProto of the sessions that measure.
        directory: directory for logs and exchange files.
        processes: the processes of the machine.
        measure_links: whether to measure links even if they are in the cache.
        report: called with a line for people at each stage.
        held_bytes: memory that the variables of the graph may take on each device.
        left_secs: the remaining time; infinite without a limit.
    """
    cached = None if measure_links else find_links(machine, session_config)
    if cached is not None:
        if cached.age_secs > _LINK_TIME.old_secs:
            report(
                f"the links of {machine.spec} were measured {format_age(cached.age_secs)} ago. If "
                "the machine has changed since, `tf_placer profile --measure_links` measures them "
                "again"
            )
        return cached.machine
    if left_secs < _LINK_TIME.min_left_secs and not measure_links:
        return _use_unmeasured_links(machine, "there is no time to measure them", report)
    report(f"measuring the links of {machine.spec}, to keep them")
    try:
        machine = calibrate_links(
            *(machine, session_config, directory, processes),
            held_bytes=held_bytes,
            timeout_secs=min(_LINK_TIME.max_secs, _LINK_TIME.max_left_share * left_secs),
        )
    except (SearchError, WorkerStartError) as error:
        if measure_links:
            raise
        return _use_unmeasured_links(machine, str(error), report)
    try:
        keep_links(machine, session_config)
    except OSError as error:
        logging.warning("the links of %s cannot be kept: %s", machine.spec, error)
    return machine


def _use_unmeasured_links(machine: Machine, why: str, report: Callable[[str], None]) -> Machine:
    """Uses the links of the description or the default links, and reports the reason."""
    if machine.links:
        report(f"the links of {machine.spec} are those of its description: {why}")
        return machine
    report(
        f"the links of {machine.spec} are the default of its kind, so predictions may be wrong: "
        f"{why}"
    )
    return set_default_links(machine)


def _set_unlimited_memory(machine: Machine) -> Machine:
    """Sets the memory of devices without a limit to the computer's memory."""
    memory_bytes = read_computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=device.memory_bytes or memory_bytes)
            for device in machine.devices
        ),
    )
