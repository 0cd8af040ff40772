"""A graph with its groups, and what everything costs on a machine."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
import time
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.placement import Placement
from tf_placer.costs.analytic import analytic_costs
from tf_placer.costs.graph_memory import variables_bytes
from tf_placer.costs.graph_problem import graph_problem
from tf_placer.costs.link_cache import keep_links, known_links
from tf_placer.costs.link_calibration import calibrate_links, with_usual_links
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.costs.original_devices import colocated_devices, find_requested_devices
from tf_placer.costs.profiling import profile_graph
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.environments.session import SessionEnvironment, WorkerStartError
from tf_placer.errors import SearchError
from tf_placer.inputs.given_devices import check_given_devices
from tf_placer.inputs.workload import Workload
from tf_placer.machines.computer_memory import computer_memory_bytes
from tf_placer.machines.emulated_machine import emulation_options
from tf_placer.machines.machine import Machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.units import format_age

__all__ = ["CostedGraph", "cost_graph"]

# A search has the graph as it came and a placement of it open while links are measured.
_OPEN_SESSIONS = 2
# Links are measured where there is so much time, in seconds; of more, a share is for them, up to a
# limit after which none are expected.
_LEAST_LINKS_SECS, _LINKS_SHARE, _MOST_LINKS_SECS = 8.0, 0.5, 60.0
# Of loops that a note names.
_MOST_LOOPS = 4


@dataclasses.dataclass(frozen=True, eq=False)
class CostedGraph:
    """A graph with its groups, and what everything costs on a machine.

    Attributes:
        grouped: the graph and its groups.
        machine: the machine, with the memory of its devices and with its links.
        costs: of the graph's operations.
    """

    grouped: GroupedGraph
    machine: Machine
    costs: OperationCosts

    def problem(self) -> PlacementProblem:
        """Makes the problem of placing the groups, with coarse ones where the groups are finer."""
        grouped, coarse = self.grouped, self.grouped.coarse
        layered = coarse or grouped
        layered_groups = layered.grouping.expand_to_operations(layered.colocation)
        return graph_problem(
            grouped.op_graph,
            grouped.grouping.expand_to_operations(grouped.colocation),
            grouped.grouping.legal_devices(grouped.colocation, self._device_names()),
            self.machine,
            self.costs,
            None if coarse is None else layered_groups,
            layered.group_graph.layers[layered_groups],
        )

    def placed(self, placement: Placement | None) -> tuple[PlacementProblem, np.ndarray]:
        """Makes the problem of placing the colocation groups, and finds where a placement has them.

        Args:
            placement: full device names by operation; None for the devices that the graph came
                with. What has none is where TensorFlow would put it: on the first GPU if it has a
                kernel for it, else on the first CPU.

        Returns:
            The problem and int32 [num_groups], a device index for each of its groups.

        Raises:
            GraphError: the placement names a device that the machine does not have.
        """
        graph, colocation = self.grouped.op_graph, self.grouped.colocation
        asked = None
        if placement is not None:
            asked = find_requested_devices(graph, colocation, placement, self.machine.devices)
        chosen = colocated_devices(colocation, self.machine.devices, asked)
        legal = np.stack([colocation.legal[device.type] for device in self.machine.devices], axis=1)
        # What is left alone may be on a device that it has no known kernel for.
        legal[np.arange(len(chosen)), chosen] |= colocation.pinned
        problem = graph_problem(graph, colocation.group, legal, self.machine, self.costs)
        # The last colocation groups have no operation in the problem if no step needs them.
        return problem, chosen[: problem.num_groups].astype(np.int32)

    def _device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.machine.devices)


def cost_graph(
    source: Workload,
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
    report: Callable[[str], None] = logging.info,
) -> CostedGraph:
    """Finds out what a graph costs on a machine: measured where it is there, else computed.

    Kernels of emulated GPUs that compute shapes alone take what is computed, so nothing is
    measured there either, although their CPU is the computer's own.

    The links of a machine are measured once, and then are those in the user's cache directory.
    Those that cannot be measured, or that there is no time to measure, are taken for those of the
    machine's description or usual ones of the kind of machine, which is said and not kept.

    Args:
        source: the graph and its step.
        machine: the machine.
        steps: how many steps to trace on each kind of device.
        granularity: how fine the groups of the graph are, as `group_operations` takes it.
        session_config: the ConfigProto of the user's sessions; None for TensorFlow's default.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.
        timeout_secs: seconds that each trace of the graph may take.
        max_secs: seconds for all of it; decides whether links are measured.
        known_secs: by placement, a device index per group, seconds of a step that was measured on
            the machine already.
        environment: runs steps of the graph on the machine; one of its own when None.
        processes: of the machine, for an environment of its own; new ones when None.
        measure_links: whether to measure links that are known; then it is an error if they cannot
            be measured.
        report: called with what is being done.

    Raises:
        GraphError: the graph is on devices that the machine lacks.
        ValueError: the granularity is unknown, or links are to be measured that nobody can measure.
        SearchError, WorkerStartError: the graph could not be run.
    """
    end_secs = time.monotonic() + max_secs
    report("grouping the operations")
    grouped = group_operations(source.op_graph, granularity)
    soft = session_config is not None and session_config.allow_soft_placement
    check_given_devices(source.op_graph, machine, source.step.initializers, soft=soft)
    if machine.backend.is_described and not machine.computes_values:
        if measure_links:
            raise ValueError(
                f"the links of {machine.spec} are those of its description and cannot be measured: "
                "leave out measure_links"
            )
        costs = analytic_costs(source.op_graph, machine)
        unknown = costs.unknown_sizes
        if unknown:
            report(
                f"the sizes of {len(unknown)} tensors are not known, the first of them "
                f"{unknown[0]}: an unknown dimension counts as 1. Feed arrays of the sizes that "
                "your steps have"
            )
        loops = costs.unknown_loops
        if loops:
            shown = ", ".join(loops[:_MOST_LOOPS]) + (", ..." if len(loops) > _MOST_LOOPS else "")
            report(
                f"constants and shapes do not tell how often these loops run: {shown}; of each of "
                "them one iteration counts. Feed arrays of the sizes that your steps have, or give "
                "maximum_iterations to tf.while_loop"
            )
        if machine.backend.is_timed:
            report(f"the costs are those that the description of {machine.spec} gives")
            machine, costs = _slowed(machine, costs, emulation_options(machine.spec).slowdown)
        return CostedGraph(grouped, machine, costs)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(temporary_directory(work_dir))
        if environment is None:
            path = pathlib.Path(directory, "graph.pb")
            path.write_bytes(source.graph_def.SerializeToString())
            environment = stack.enter_context(
                SessionEnvironment(
                    path,
                    source.step,
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
            machine = _with_links(
                *(machine, session_config, directory, environment.processes, measure_links, report),
                held_bytes=_OPEN_SESSIONS * variables_bytes(grouped.op_graph),
                left_secs=end_secs - time.monotonic(),
            )
    return CostedGraph(grouped, _with_memory(machine), costs)


def _slowed(
    machine: Machine, costs: OperationCosts, slowdown: float
) -> tuple[Machine, OperationCosts]:
    """Makes links and operations take so many times as long."""
    links = tuple(
        dataclasses.replace(
            link,
            latency_secs=slowdown * link.latency_secs,
            bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec / slowdown,
        )
        for link in machine.links
    )
    secs = slowdown * costs.compute_secs
    return dataclasses.replace(machine, links=links), dataclasses.replace(costs, compute_secs=secs)


def _with_links(
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
    """Adds the links of a machine: those that are known, or else as they are measured now.

    Args:
        machine: without links.
        session_config: of the sessions that measure.
        directory: for logs and exchange files.
        processes: of the machine.
        measure_links: whether to measure links that are known.
        report: called with what is being done.
        held_bytes: what the variables of the graph may take on each device.
        left_secs: the time that is left; infinite without a limit.
    """
    known = None if measure_links else known_links(machine, session_config)
    if known is not None:
        report(f"the links of {machine.spec} are those measured {format_age(known.age_secs)} ago")
        return known.machine
    if left_secs < _LEAST_LINKS_SECS and not measure_links:
        return _without_measuring(machine, "there is no time to measure them", report)
    report(f"measuring the links of {machine.spec}, to keep them")
    try:
        machine = calibrate_links(
            *(machine, session_config, directory, processes),
            held_bytes=held_bytes,
            timeout_secs=min(_MOST_LINKS_SECS, _LINKS_SHARE * left_secs),
        )
    except (SearchError, WorkerStartError) as error:
        if measure_links:
            raise
        return _without_measuring(machine, str(error), report)
    try:
        keep_links(machine, session_config)
    except OSError as error:
        logging.warning("the links of %s cannot be kept: %s", machine.spec, error)
    return machine


def _without_measuring(machine: Machine, why: str, report: Callable[[str], None]) -> Machine:
    """Takes the links of a machine for those of its description or usual ones, and says so."""
    if machine.links:
        report(f"the links of {machine.spec} are those of its description: {why}")
        return machine
    report(
        f"the links of {machine.spec} are taken for usual ones of its kind, so predictions may be "
        f"wrong: {why}"
    )
    return with_usual_links(machine)


def _with_memory(machine: Machine) -> Machine:
    """Gives the devices of a machine that have no limit of their own the computer's memory."""
    memory_bytes = computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=device.memory_bytes or memory_bytes)
            for device in machine.devices
        ),
    )
