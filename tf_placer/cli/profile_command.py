"""What the commands do that turn a graph and a machine into a placement problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.placement import read_placement
from tf_placer.cli.commands import read_feeds
from tf_placer.cli.problem_commands import report_step
from tf_placer.costs.costed_graph import CostedGraph, cost_graph
from tf_placer.costs.graph_problem import operations_of
from tf_placer.files import check_output
from tf_placer.inputs.sources import read_source
from tf_placer.machines.lookup import find_machine
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import write_problem
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["profile_file", "simulate_graph_file"]


def profile_file(
    input_graph: str,
    output: str,
    *,
    machine: str,
    fetches: Sequence[str] | None,
    feeds_path: str | None,
    initializers: Sequence[str] | None,
    steps: int,
    grouping: str,
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
        grouping: what a group of the problem is, as `group_operations` takes it.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: something of this is wrong or
            cannot be run.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, not {steps}")
    check_output(output, input_graph, feeds_path)
    feeds = None if feeds_path is None else read_feeds(feeds_path)
    source = read_source(input_graph, fetches, feeds, initializers)
    costed = cost_graph(source, find_machine(machine), steps=steps, grouping=grouping)
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
        check_output(path, input_graph, placement_path)
    placement = None if placement_path is None else read_placement(placement_path)
    source = read_source(input_graph, fetches)
    costed = cost_graph(source, find_machine(machine), steps=10)
    try:
        problem, row = costed.placed(placement)
    except GraphError as error:
        raise GraphError(f"{placement_path!r} on {machine!r}: {error}") from None
    report_step(problem, row, output=output, trace=trace)
