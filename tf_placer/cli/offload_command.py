"""The command `offload`: lets tensors of a graph wait on the CPU, so that a placement fits."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import add_memory_limits, read_memory_limits
from tf_placer.cli.changed_graph import add_changed_graph, read_placed_graph, write_changed_graph
from tf_placer.problem.memory_limits import check_headroom, limit_problem, read_max_memory

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Changes a graph file so that activations leave over-full GPUs, wait on the CPU and come back "
    "before their later readers. The graph computes the same values; the step is simulated. "
    "Variables, operations with state and control flow are left alone. For graphs of which no "
    "placement fits."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_changed_graph(parser)
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
    graph, whole, placement = read_placed_graph(args)
    from graph_passes.errors import GraphError
    from graph_passes.host_copies import AddHostCopies
    from tf_placer.costs.host_copies import choose_host_copies
    from tf_placer.report.memory_use import describe_memory_use
    from tf_placer.text.units import format_bytes, format_step

    problem = limit_problem(whole, max_memory, headroom)
    found = choose_host_copies(graph, problem, placement)
    if found is None:
        used = describe_memory_use(problem, placement.tolist(), None)
        raise GraphError(
            f"the graph does not fit in this way: {used}, and too few of its tensors wait for "
            "later readers. Place it on more devices, or take devices with more memory"
        )
    moved, copies = found
    write_changed_graph(args, graph, AddHostCopies(copies))
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
