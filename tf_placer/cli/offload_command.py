"""The command `offload`: lets tensors of a graph wait on the CPU, so that a placement fits."""

from __future__ import annotations

import argparse
import os

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import (
    MACHINE_HELP,
    PLACEMENT_HELP,
    add_clear_devices,
    add_memory_limits,
    add_step,
    read_memory_limits,
)
from tf_placer.cli.graph_costs import place_graph_file
from tf_placer.errors import require_tensorflow
from tf_placer.problem.memory_limits import check_headroom, limit_problem, read_max_memory

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Changes a graph file so that activations leave over-full GPUs, wait on the CPU and come back "
    "before their later readers. The graph computes the same values; the step is simulated. "
    "Variables, operations with state and control flow are left alone. For graphs of which no "
    "placement fits."
)
_INPUT_HELP = "graph file: a GraphDef (.pb, .pbtxt) or a MetaGraphDef (.meta, binary or text)"
_OUTPUT_HELP = "file for the changed graph, in the format of its ending"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("--input_graph", required=True, help=_INPUT_HELP)
    parser.add_argument("--output_graph", required=True, help=_OUTPUT_HELP)
    parser.add_argument("--machine", required=True, help=MACHINE_HELP)
    parser.add_argument(
        "--placement",
        help=f"{PLACEMENT_HELP}, which is put on the graph; the original by default",
    )
    add_step(parser)
    add_clear_devices(parser)
    add_memory_limits(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Writes a graph whose tensors wait on the CPU, and prints the memory and the step.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, the graph
            cannot be run, or it does not fit in this way.
    """
    max_memory = read_max_memory(read_memory_limits(args.max_memory)) or {}
    headroom = check_headroom(args.headroom)
    require_tensorflow()
    from graph_passes.annotate import Annotate, DropDanglingColocation
    from graph_passes.errors import GraphError
    from graph_passes.fitting import fit
    from graph_passes.host_copies import AddHostCopies
    from graph_passes.placement import read_placement
    from tf_placer.costs.host_copies import choose_host_copies
    from tf_placer.inputs.graph_files import check_output, write_graph
    from tf_placer.inputs.workload import read_graph
    from tf_placer.report.memory_use import describe_memory_use
    from tf_placer.text.units import format_bytes, format_step

    if os.path.isdir(args.input_graph):
        raise GraphError(
            f"{args.input_graph!r} is a directory: offload takes graph files (.pb, .pbtxt, .meta), "
            "because only training keeps activations"
        )
    check_output(args.output_graph, args.input_graph, args.placement, args.feeds)
    (whole, placement), _, costed = place_graph_file(args)
    problem = limit_problem(whole, max_memory, headroom)
    graph = costed.grouped.op_graph
    found = choose_host_copies(graph, problem, placement)
    if found is None:
        used = describe_memory_use(problem, placement.tolist(), None)
        raise GraphError(
            f"the graph does not fit in this way: {used}, and too few of its tensors wait for "
            "later readers. Place it on more devices, or take devices with more memory"
        )
    moved, copies = found
    graph_def = DropDanglingColocation().run(graph.graph_def)
    if args.placement is not None:
        graph_def = Annotate(fit(graph, read_placement(args.placement)).assignment).run(graph_def)
    graph_def = AddHostCopies(copies).run(graph_def)
    given = read_graph(args.input_graph, args.signature)
    write_graph(args.output_graph, graph_def, given.meta_graph)
    text = "the placement fits as it is: nothing was moved"
    if copies:
        longer = moved.step_secs / moved.unmoved_secs - 1.0
        text = (
            f"{len(copies)} tensors wait on the CPU, {format_bytes(moved.moved_bytes)} together: "
            f"{format_step(moved.step_secs)} a step by simulation, {longer:.1%} slower than with "
            "enough memory"
        )
    values = {
        "tensors": len(copies),
        "moved_bytes": moved.moved_bytes,
        "step_secs": moved.step_secs,
        "unlimited_secs": moved.unmoved_secs,
        "output_graph": args.output_graph,
    }
    answer(args, f"{text}\ngraph: {args.output_graph}", values)
