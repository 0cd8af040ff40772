"""Finds out, for a command, what a graph file costs on a machine."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from tf_placer.environments.live_processes import LiveProcesses
from tf_placer.errors import require_tensorflow
from tf_placer.machines.lookup import find_machine
from tf_placer.scratch import scratch_directory
from tf_placer.text.notes import write_note
from tf_placer.text.stages import Stages

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import numpy as np
    import tensorflow as tf

    from tf_placer.costs.costed_graph import CostedGraph
    from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["cost_graph_file", "place_graph_file"]

# A problem, and int32 [num_groups], a device index for each of its groups.
_Placed = tuple["PlacementProblem", "np.ndarray"]


def cost_graph_file(
    input_graph: str,
    machine_spec: str,
    *,
    fetches: Sequence[str] | None = None,
    feeds_path: str | None = None,
    initializers: Sequence[str] | None = None,
    restore_from: str | None = None,
    signature: str | None = None,
    steps: int = 10,
    granularity: str = "coarse",
    measure_links: bool = False,
    clear_devices: bool = False,
) -> CostedGraph:
    """Finds out what a graph costs, and says on standard error what it is doing.

    Processes that are needed start first, so that they import TensorFlow while this one does.

    Args:
        input_graph: the graph file, or the SavedModel directory.
        machine_spec: as `find_machine` takes it.
        fetches: what a step fetches; as `read_source` finds it when None.
        feeds_path: a file with what it feeds; as `read_source` makes it up when None.
        initializers: what runs before the first step; as `read_source` finds it when None.
        restore_from: what variables begin with; as their initializers say when None.
        signature: of a SavedModel; as `read_graph` finds it when None.
        steps: how many steps to trace on each kind of device.
        granularity: how fine groups are.
        measure_links: whether to measure links that are known.
        clear_devices: whether to clear the devices that the graph came with.

    Raises:
        GraphError, MachineError, SearchError, WorkerStartError, ValueError, OSError: something of
            this is wrong or cannot be run.
    """
    require_tensorflow()
    with contextlib.ExitStack() as stack:
        stages = stack.enter_context(Stages(write_note))
        # What is not there is said before anything starts.
        for path in (input_graph, feeds_path):
            if path is not None:
                os.stat(path)
        stages.begin(f"looking at {machine_spec}")
        machine = find_machine(machine_spec)
        processes = None
        if machine.backend.is_timed:
            directory = stack.enter_context(scratch_directory())
            processes = LiveProcesses(machine, directory)
            stack.callback(processes.close)
            stages.begin("starting TensorFlow")
            processes.launch()
        # It takes seconds to import.
        from tf_placer.costs.costed_graph import cost_graph
        from tf_placer.inputs.feeds_file import read_feeds
        from tf_placer.inputs.python_functions import check_no_python_functions
        from tf_placer.inputs.sources import read_graph, read_source, without_devices

        stages.begin(f"reading {input_graph}")
        feeds = None if feeds_path is None else read_feeds(feeds_path)
        graph = read_graph(input_graph, signature)
        if clear_devices:
            graph = without_devices(graph)
        source = read_source(graph, fetches, feeds, initializers, restore_from=restore_from)
        for note in source.notes:
            stages.say(note)
        if processes is not None:
            check_no_python_functions(source.op_graph, source.step)
        return cost_graph(
            source,
            machine,
            steps=steps,
            granularity=granularity,
            processes=processes,
            measure_links=measure_links,
            report=stages.begin,
        )


def place_graph_file(
    args: argparse.Namespace,
) -> tuple[_Placed, _Placed | None, tf.compat.v1.GraphDef]:
    """Finds out what the operations of a graph cost, and which device each group is on.

    Args:
        args: what `simulate` takes of a graph.

    Returns:
        The graph as it is placed; the original, if that is placed otherwise; and the graph itself.
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
        restore_from=args.restore_from,
        signature=args.signature,
        clear_devices=args.clear_devices,
    )
    try:
        original = costed.placed(None)
        graph_def = costed.grouped.op_graph.graph_def
        if placement is None:
            return original, None, graph_def
        return costed.placed(placement), original, graph_def
    except GraphError as error:
        if placement is None:
            raise
        raise GraphError(f"{args.placement!r} on {args.machine!r}: {error}") from None
