"""What the commands do that turn a graph and a machine into a placement problem."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
from absl import logging

from graph_passes.devices import home_device
from graph_passes.errors import GraphError
from graph_passes.pipeline import GroupedGraph, group_operations
from graph_passes.placement import Placement, read_placement
from tf_placer.commands import read_feeds
from tf_placer.costs.analytic import analytic_costs
from tf_placer.costs.graph_problem import graph_problem, operations_of
from tf_placer.costs.operation_costs import OperationCosts
from tf_placer.json_file import check_output
from tf_placer.link_calibration import calibrate_links
from tf_placer.machine import Machine
from tf_placer.machine_lookup import computer_memory_bytes, find_machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.problem_commands import report_step
from tf_placer.profiling import profile_graph
from tf_placer.report.table import table
from tf_placer.report.units import format_bytes, format_step
from tf_placer.sources import Source, read_source

__all__ = ["CostedGraph", "cost_graph", "profile_file", "simulate_graph_file"]


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
        """The problem of placing the groups."""
        grouped = self.grouped
        return graph_problem(
            grouped.op_graph,
            grouped.grouping.of_operations(grouped.colocation),
            grouped.grouping.legal_devices(grouped.colocation, self._device_names()),
            self.machine,
            self.costs,
        )

    def placed(self, placement: Placement | None) -> tuple[PlacementProblem, np.ndarray]:
        """The problem of placing the colocation groups, and where a placement has them.

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
        names = self._device_names()
        asked = list(colocation.devices)
        assignment = placement.assignment if placement else {}
        for name, device in assignment.items():
            if device not in names:
                raise GraphError(f"the placement has {name!r} on {device}, which is not there")
            if name in graph.index:
                asked[colocation.group[graph.index[name]]] = device
        missing = [name for name in assignment if name not in graph.index]
        if missing:
            logging.warning(
                "the graph lacks %d operations of the placement: %r ...", len(missing), missing[0]
            )
        legal = np.stack([colocation.legal[device.type] for device in self.machine.devices], axis=1)
        gpus = np.array([device.type == "GPU" for device in self.machine.devices])
        default = np.where((legal & gpus).any(axis=1), (legal & gpus).argmax(axis=1), 0)
        chosen = [
            home_device(device, names) if device else default[hard]
            for hard, device in enumerate(asked)
        ]
        # What is left alone may be on a device that it has no known kernel for.
        legal[np.arange(len(chosen)), chosen] |= colocation.left_alone
        problem = graph_problem(graph, colocation.group, legal, self.machine, self.costs)
        # The last colocation groups have no operation in the problem if no step needs them.
        return problem, np.array(chosen[: problem.num_groups], np.int32)

    def _device_names(self) -> tuple[str, ...]:
        return tuple(device.name for device in self.machine.devices)


def cost_graph(
    source: Source, machine: Machine, *, steps: int, work_dir: str | os.PathLike[str] | None = None
) -> CostedGraph:
    """Finds out what a graph costs on a machine: measured where it is there, else computed.

    Args:
        source: the graph and its step.
        machine: the machine.
        steps: how many steps to trace on each kind of device.
        work_dir: directory for logs and exchange files; the system's temporary directory when None.

    Raises:
        SearchError, WorkerStartError: the graph could not be run.
    """
    grouped = group_operations(source.op_graph)
    if machine.kind == "described":
        return CostedGraph(grouped, machine, analytic_costs(source.op_graph, machine))
    with tempfile.TemporaryDirectory(dir=work_dir) as directory:
        path = pathlib.Path(directory, "graph.pb")
        path.write_bytes(source.graph_def.SerializeToString())
        costs = profile_graph(path, source.step, grouped, machine, steps=steps, work_dir=directory)
        machine = calibrate_links(machine, work_dir=directory)
    return CostedGraph(grouped, _with_memory(machine), costs)


def _with_memory(machine: Machine) -> Machine:
    """The machine with the computer's memory for devices that have no limit of their own."""
    memory_bytes = computer_memory_bytes()
    return dataclasses.replace(
        machine,
        devices=tuple(
            dataclasses.replace(device, memory_bytes=device.memory_bytes or memory_bytes)
            for device in machine.devices
        ),
    )


def profile_file(
    input_graph: str,
    output: str,
    *,
    machine: str,
    fetches: Sequence[str] | None,
    feeds_path: str | None,
    initializers: Sequence[str] | None,
    steps: int,
) -> None:
    """Writes the placement problem of a graph file on a machine and prints what is in it.

    Args:
        input_graph: path of the graph.
        output: where the problem goes.
        machine: as `find_machine` takes it.
        fetches: what a step fetches; None for the `train_op` collection.
        feeds_path: `.npz` file of values by placeholder, or None.
        initializers: operations to run before the first step; None to find them.
        steps: how many steps to trace on each kind of device.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: something of this is wrong or
            cannot be run.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    check_output(output)
    feeds = None if feeds_path is None else read_feeds(feeds_path)
    source = read_source(input_graph, fetches, feeds, initializers)
    costed = cost_graph(source, find_machine(machine), steps=steps)
    problem = costed.problem()
    write_problem(problem, output)
    print(_summary(costed, problem))
    print("problem:", output)


def _summary(costed: CostedGraph, problem: PlacementProblem) -> str:
    whole_secs = np.where(np.isfinite(problem.compute_secs), problem.compute_secs, 0).sum(axis=0)
    devices = table(
        ["device", "kind", "memory", "all operations"],
        [
            [device.name, device.kind, format_bytes(device.memory_bytes), format_step(secs)]
            for device, secs in zip(problem.devices, whole_secs.tolist(), strict=True)
        ],
        "llrr",
    )
    links = table(
        ["from", "to", "latency", "bandwidth", "channel"],
        [
            [
                link.source,
                link.destination,
                format_step(link.latency_secs),
                f"{format_bytes(int(link.bandwidth_bytes_per_sec))}/s",
                link.channel,
            ]
            for link in problem.links
        ],
        "llrrl",
    )
    kept = operations_of(costed.grouped.op_graph)
    still = int((costed.costs.compute_secs[kept] == 0).all(axis=1).sum())
    text = (
        f"{problem.num_operations} operations in {problem.num_groups} groups, "
        f"{problem.num_tensors} tensors; costs: {costed.costs.source}"
    )
    if costed.costs.source == "profiled":
        text += f"; {still} operations did not run (folded, merged or not taken) and count no time"
    return "\n\n".join([text, devices, links])


def simulate_graph_file(
    input_graph: str,
    *,
    machine: str,
    fetches: Sequence[str] | None,
    placement_path: str | None,
    output: str | None,
    trace: str | None,
) -> None:
    """Simulates one step of a graph file on a machine; prints and writes what happens in it.

    Args:
        input_graph: path of the graph.
        machine: as `find_machine` takes it.
        fetches: what a step fetches; None for the `train_op` collection.
        placement_path: placement of a search; None for the devices that the graph came with.
        output: where the report goes, or None.
        trace: where the Chrome trace goes, or None.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: something of this is wrong or
            cannot be run.
    """
    for path in filter(None, (output, trace)):
        check_output(path)
    placement = None if placement_path is None else read_placement(placement_path)
    source = read_source(input_graph, fetches)
    costed = cost_graph(source, find_machine(machine), steps=10)
    try:
        problem, row = costed.placed(placement)
    except GraphError as error:
        raise GraphError(f"{placement_path!r} on {machine!r}: {error}") from None
    report_step(problem, row, output=output, trace=trace)
