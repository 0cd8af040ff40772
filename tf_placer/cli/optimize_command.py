"""The command `optimize`: a graph file in, the graph with faster devices out."""

from __future__ import annotations

import argparse

from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    OUTPUT_HELP,
    add_clear_devices,
    add_placer,
    add_step,
    add_workers,
    placer_options,
    placers_help,
)
from tf_placer.errors import require_tensorflow
from tf_placer.placers import AUTO

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Times steps of the graph as it came, on each device, and split by layer; then lets a placer "
    "search. The fastest placements are measured again beside the original. The output is the "
    "graph with devices, or the graph as it came if nothing is faster. Ctrl-C ends the search with "
    "the best so far, after a short confirmation."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.epilog = placers_help()
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--output_graph", help=OUTPUT_HELP)
    add_step(parser)
    parser.add_argument("--machine", default="attached", help=MACHINE_HELP)
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials", type=int, default=150, help="placements to measure at most (default 150)"
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=600.0,
        help="seconds at most, starting, profiling and the confirmation included (default 600)",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for the log and the placement; give it again to go on with a search; a "
        "temporary one by default",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    add_clear_devices(parser)
    add_workers(parser)


def run(args: argparse.Namespace) -> None:
    """Optimises a graph file, writes the result and prints what came of it.

    Raises:
        GraphError, ValueError, OSError, SearchError: as `optimize` raises them.
    """
    require_tensorflow()
    from tf_placer.inputs.feeds_file import read_feeds
    from tf_placer.inputs.graph_files import check_output, write_graph
    from tf_placer.inputs.saved_model_files import check_new_directory
    from tf_placer.inputs.sources import read_graph, without_devices
    from tf_placer.live.optimization import optimize

    graph = read_graph(args.input_graph, args.signature)
    is_saved = graph.signature is not None
    if args.output_graph is not None:
        if is_saved:
            check_new_directory(args.output_graph, args.input_graph)
        else:
            check_output(args.output_graph)
    if args.clear_devices:
        graph = without_devices(graph)
    result = optimize(
        graph,
        feeds=None if args.feeds is None else read_feeds(args.feeds),
        fetches=args.fetches,
        initializers=args.initializers,
        restore_from=args.restore_from,
        machine=args.machine,
        placer=args.placer,
        placer_options=placer_options(args.placer_option),
        max_trials=args.max_trials,
        max_secs=args.max_secs,
        log_dir=args.log_dir,
        seed=args.seed,
        workers=args.workers,
        num_workers=args.num_workers,
    )
    if args.output_graph is not None and is_saved:
        result.save(args.output_graph)
    elif args.output_graph is not None:
        write_graph(args.output_graph, result.graph_def, graph.meta_graph)
    if result.table():
        print(result.table(), end="\n\n")
    if result.explanation is not None:
        print(result.explanation_table(), end="\n\n")
    print("placed" if result.changed else "unchanged", "-", result.reason)
    if args.output_graph is not None:
        print("graph:", args.output_graph)
    if result.placement is not None and result.log_dir is not None:
        print("placement:", result.log_dir / "placement.json")
    if result.log_dir is not None:
        print("log:", result.log_dir)
