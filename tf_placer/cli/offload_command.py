"""The command `offload`: lets tensors of a graph wait on the CPU, so that a placement fits."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import add_memory_limits, read_memory_limits
from tf_placer.cli.changed_graph import add_changed_graph, read_placed_graph, write_changed_graph
from tf_placer.problem.memory_limits import (
    OFFLOAD_HEADROOM,
    check_headroom,
    limit_problem,
    read_max_memory,
)

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
    add_memory_limits(parser, headroom=OFFLOAD_HEADROOM)
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
    from graph_passes.host_copies import AddHostCopies
    from tf_placer.live.offloading import choose_copies, describe_copies

    moved, copies = choose_copies(graph, limit_problem(whole, max_memory, headroom), placement)
    write_changed_graph(args, graph, AddHostCopies(copies))
    values = {
        "tensors": len(copies),
        "moved_bytes": moved.moved_bytes,
        "step_secs": moved.step_secs,
        "unlimited_secs": moved.unmoved_secs,
        "output_graph": args.output_graph,
    }
    answer(args, f"{describe_copies(moved, copies)}\ngraph: {args.output_graph}", values)
