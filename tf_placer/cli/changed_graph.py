"""Arguments and files of commands that change a placed graph file."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tf_placer.cli.arguments import MACHINE_HELP, PLACEMENT_HELP, add_clear_devices, add_step
from tf_placer.cli.graph_costs import place_graph_file
from tf_placer.errors import require_tensorflow

if TYPE_CHECKING:
    import numpy as np

    from graph_passes.graph_pass import GraphPass
    from graph_passes.op_graph import OpGraph
    from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["add_changed_graph", "read_placed_graph", "write_changed_graph"]


def add_changed_graph(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for the graph, its step, the machine, the placement and the output."""
    parser.add_argument(
        "--input_graph",
        required=True,
        help="graph file: a GraphDef (.pb, .pbtxt) or a MetaGraphDef (.meta, binary or text)",
    )
    parser.add_argument(
        "--output_graph",
        required=True,
        help="file for the changed graph, in the format of its ending",
    )
    parser.add_argument("--machine", required=True, help=MACHINE_HELP)
    parser.add_argument(
        "--placement",
        help=f"{PLACEMENT_HELP}, which is put on the graph; the original by default",
    )
    add_step(parser)
    add_clear_devices(parser)


def read_placed_graph(
    args: argparse.Namespace,
) -> tuple[OpGraph, PlacementProblem, np.ndarray]:
    """Reads the graph and determines its costs.

    Args:
        args: the arguments of `add_changed_graph`.

    Returns:
        The graph, with the operations of the step marked as needed; its problem; and its placement,
        int32 [num_groups].

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, the graph
            cannot be run, or there could be no output.
    """
    require_tensorflow()
    from graph_passes.errors import GraphError
    from tf_placer.inputs.graph_files import check_output

    if os.path.isdir(args.input_graph):
        raise GraphError(
            f"{args.input_graph!r} is a directory: {args.command} takes graph files (.pb, .pbtxt, "
            ".meta)"
        )
    check_output(args.output_graph, args.input_graph, args.placement, args.feeds)
    (problem, placement), _, costed = place_graph_file(args)
    return costed.grouped.op_graph, problem, placement


def write_changed_graph(args: argparse.Namespace, graph: OpGraph, change: GraphPass) -> None:
    """Writes the graph with the devices of the placement, and changed by a pass.

    Args:
        args: the arguments of `add_changed_graph`.
        graph: the graph that was read.
        change: the pass.

    Raises:
        GraphError: see the pass.
        OSError: the file cannot be written.
    """
    from graph_passes.annotate import Annotate, DropDanglingColocation
    from graph_passes.fitting import fit
    from graph_passes.placement import read_placement
    from tf_placer.inputs.graph_files import write_graph
    from tf_placer.inputs.workload import read_graph

    graph_def = DropDanglingColocation().run(graph.graph_def)
    if args.placement is not None:
        graph_def = Annotate(fit(graph, read_placement(args.placement)).assignment).run(graph_def)
    given = read_graph(args.input_graph, args.signature)
    write_graph(args.output_graph, change.run(graph_def), given.meta_graph)
