"""The command `order`: sets the order in which GPUs are handed the operations of a placed graph."""

from __future__ import annotations

import argparse

from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.changed_graph import add_changed_graph, read_placed_graph, write_changed_graph
from tf_placer.machines.lookup import find_machine
from tf_placer.machines.machine import MachineError
from tf_placer.text.notes import say
from tf_placer.text.units import format_duration, format_step

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Adds control edges to a placed graph file, so that each GPU is handed its operations in an "
    "order that makes the step short. By itself TensorFlow hands them over as they become ready, "
    "and copies wait for all that was handed over before. The graph computes the same values; the "
    "step is simulated. For graphs whose branches run side by side."
)
_DEFAULT_SECS = 30.0
# A smaller part of the step is not worth the control edges.
_LEAST_SAVED_SHARE = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    add_changed_graph(parser)
    parser.add_argument(
        "--max_secs",
        type=float,
        default=_DEFAULT_SECS,
        help=f"seconds to search; {_DEFAULT_SECS:.0f} by default",
    )
    parser.add_argument("--seed", type=int, default=0, help="seeds the search; 0 by default")
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Writes a graph with an order of its operations, and prints the step.

    Raises:
        GraphError, MachineError, SearchError, ValueError, OSError: an argument is wrong, the graph
            cannot be run, or it cannot be ordered.
    """
    if not args.max_secs > 0:
        raise ValueError(f"--max_secs must be positive, not {args.max_secs}")
    machine = find_machine(args.machine)
    if not any(device.type == "GPU" for device in machine.devices):
        raise MachineError(
            f"{args.machine!r} has no GPU: only GPUs are handed operations ahead, in an order that "
            "can be set"
        )
    graph, problem, placement = read_placed_graph(args)
    from graph_passes.operation_order import OrderOperations
    from tf_placer.costs.operation_order import find_control_edges

    say(f"searching an order for {format_duration(args.max_secs)}")
    found, edges = find_control_edges(
        graph, problem, placement, max_secs=args.max_secs, seed=args.seed
    )
    if found.step_secs > (1.0 - _LEAST_SAVED_SHARE) * found.unordered_secs:
        edges = []
    write_changed_graph(args, graph, OrderOperations(edges))
    text = (
        "no order was found that makes the step at least "
        f"{_LEAST_SAVED_SHARE:.0%} shorter than {format_step(found.unordered_secs)}: none was set"
    )
    if edges:
        text = (
            f"{format_step(found.step_secs)} a step by simulation in the order of "
            f"{len(edges):,} control edges, {format_step(found.unordered_secs)} without, "
            f"{found.unordered_secs / found.step_secs:.2f}x as fast"
        )
    values = {
        "control_edges": len(edges),
        "step_secs": found.step_secs if edges else found.unordered_secs,
        "unordered_secs": found.unordered_secs,
        "output_graph": args.output_graph,
    }
    answer(args, f"{text}\ngraph: {args.output_graph}", values)
