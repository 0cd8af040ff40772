"""Costs of a graph file on machines, for commands."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from graph_passes.restrictions import check_keep_together, check_pins, resolve_restrictions
from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.errors import require_tensorflow
from tf_placer.machines.catalog import make_described_machine
from tf_placer.machines.lookup import find_machine
from tf_placer.temporary_directory import temporary_directory
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    import numpy as np

    from tf_placer.costs.costed_graph import CostedGraph
    from tf_placer.inputs.workload import Workload
    from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["cost_graph_file", "cost_on_machines", "place_graph_file"]

# A problem and its placement: int32 [num_groups], a device index per group.
_Placed = tuple["PlacementProblem", "np.ndarray"]


def cost_graph_file(
    input_graph: str,
    machine_spec: str,
    *,
    fetches: Sequence[str] | None = None,
    feeds_path: str | None = None,
    initializers: Sequence[str] | None = None,
    checkpoint: str | None = None,
    signature_key: Sequence[str] | None = None,
    steps: int = 10,
    granularity: str = "coarse",
    measure_links: bool = False,
    clear_devices: bool = False,
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[Sequence[str]] = (),
) -> CostedGraph:
    """Determines the costs of a graph, and reports each stage on standard error.

    Worker processes start first, so that they import TensorFlow while this process does.

    Args:
        input_graph: the graph file, or the SavedModel directory.
        machine_spec: the machine, in the form of `find_machine`.
        fetches: operations and tensors that a step fetches; found by `read_workload` when None.
        feeds_path: a file with the fed values; `read_workload` generates them when None.
        initializers: operations to run before the first step; found by `read_workload` when None.
        checkpoint: a checkpoint of the variables; their initializers run when None.
        signature_key: the signatures of a SavedModel; found by `read_graph` when None.
        steps: number of steps to trace on each kind of device.
        granularity: "coarse" or "fine" groups.
        measure_links: whether to measure links that were measured before.
        clear_devices: whether to clear the devices in the graph.
        pin: devices by pattern; see `SearchConfig`.
        keep_together: sets of patterns; see `SearchConfig`.

    Raises:
        GraphError, MachineError, SearchError, WorkerStartError, ValueError, OSError: an argument is
            wrong, or the graph cannot be run.
    """
    require_tensorflow()
    pins, together = check_pins(pin or {}), check_keep_together(keep_together)
    with contextlib.ExitStack() as stack:
        stages = stack.enter_context(Stages(say))
        # Report missing files before any process starts.
        for path in (input_graph, feeds_path):
            if path is not None:
                os.stat(path)
        stages.enter(f"looking at {machine_spec}")
        machine = find_machine(machine_spec)
        restrictions = resolve_restrictions(pins, together, [each.name for each in machine.devices])
        processes = None
        if machine.backend.is_timed:
            directory = stack.enter_context(temporary_directory())
            processes = LiveProcesses(machine, directory)
            stack.callback(processes.close)
            stages.begin("starting TensorFlow")
            processes.launch()
        stages.enter("importing TensorFlow")
        # Import TensorFlow only now: it takes seconds, while the worker processes start.
        from tf_placer.costs.costed_graph import cost_graph
        from tf_placer.inputs.python_functions import check_no_python_functions

        workload = _read_step(
            stages,
            input_graph,
            fetches,
            feeds_path,
            initializers,
            checkpoint,
            signature_key,
            clear_devices=clear_devices,
            read_values=not machine.describes_costs,
        )
        if processes is not None:
            check_no_python_functions(workload.op_graph, workload.step)
        return cost_graph(
            workload,
            machine,
            steps=steps,
            granularity=granularity,
            processes=processes,
            measure_links=measure_links,
            restrictions=restrictions,
            report=stages.begin,
        )


def cost_on_machines(
    args: argparse.Namespace,
    specs: Sequence[str],
    *,
    granularity: str = "fine",
    pin: Mapping[str, str] | None = None,
    keep_together: Sequence[Sequence[str]] = (),
) -> dict[str, PlacementProblem]:
    """Computes the costs of a graph file on several described machines.

    Args:
        args: the arguments of `compare` or `profile` with a graph.
        specs: names of the catalog, or machine files.
        granularity: "coarse" or "fine" groups.
        pin: devices by pattern; see `SearchConfig`.
        keep_together: sets of patterns; see `SearchConfig`.

    Returns:
        The problem of each machine.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, or the
            graph cannot be run.
    """
    require_tensorflow()
    pins, together = check_pins(pin or {}), check_keep_together(keep_together)
    machines = {spec: make_described_machine(spec) for spec in specs}
    for path in (args.input_graph, args.feeds):
        if path is not None:
            os.stat(path)
    with Stages(say) as stages:
        stages.enter("importing TensorFlow")
        from tf_placer.costs.costed_graph import cost_graph
        from tf_placer.inputs.given_devices import describe_immovable_step

        workload = _read_step(
            stages,
            args.input_graph,
            args.fetches,
            args.feeds,
            args.initializers,
            args.restore_from,
            args.signature,
            clear_devices=args.clear_devices,
            read_values=False,
        )
        if (note := describe_immovable_step(workload.op_graph)) is not None:
            stages.say(note)
        # The machines have most notes about the graph in common.
        return {
            spec: cost_graph(
                workload,
                machine,
                steps=1,
                granularity=granularity,
                restrictions=resolve_restrictions(
                    pins, together, [device.name for device in machine.devices]
                ),
                report=stages.begin_once,
            ).problem()
            for spec, machine in machines.items()
        }


def _read_step(
    stages: Stages,
    input_graph: str,
    fetches: Sequence[str] | None,
    feeds_path: str | None,
    initializers: Sequence[str] | None,
    checkpoint: str | None,
    signature_key: Sequence[str] | None,
    *,
    clear_devices: bool,
    read_values: bool,
) -> Workload:
    """Reads a graph file and its step, and reports notes about it; see `cost_graph_file`."""
    from tf_placer.inputs.feeds_file import read_feeds
    from tf_placer.inputs.workload import read_graph, read_workload, remove_devices

    stages.begin(f"reading {input_graph}")
    feed_dict = None if feeds_path is None else read_feeds(feeds_path)
    graph = read_graph(input_graph, signature_key)
    if clear_devices:
        graph = remove_devices(graph)
    workload = read_workload(
        graph, fetches, feed_dict, initializers, checkpoint=checkpoint, read_values=read_values
    )
    for note in workload.notes:
        stages.say(note)
    return workload


def place_graph_file(
    args: argparse.Namespace,
) -> tuple[_Placed, _Placed | None, CostedGraph]:
    """Determines the costs of a graph, and the device of each of its groups.

    Args:
        args: the arguments of `simulate` or `offload` with a graph.

    Returns:
        The placed graph; the original, if a placement is given; and the graph with its costs.
    """
    from graph_passes.errors import GraphError
    from graph_passes.placement import read_placement

    placement = None if args.placement is None else read_placement(args.placement)
    costed = cost_graph_file(
        args.input_graph,
        args.machine,
        fetches=args.fetches,
        feeds_path=args.feeds,
        initializers=args.initializers,
        checkpoint=args.restore_from,
        signature_key=args.signature,
        clear_devices=args.clear_devices,
    )
    try:
        original = costed.build_placed_problem(None)
        if placement is None:
            return original, None, costed
        return costed.build_placed_problem(placement), original, costed
    except GraphError as error:
        if placement is None:
            raise
        raise GraphError(f"{args.placement!r} on {args.machine!r}: {error}") from None
