"""The command `optimize`: finds a faster placement of a graph file."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tf_placer.cli.answer import NO_VERDICT, add_json, answer
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    MACHINE_HELP,
    OUTPUT_HELP,
    add_answers,
    add_clear_devices,
    add_memory_goal,
    add_placer,
    add_protocol,
    add_restrictions,
    add_step,
    add_stop_at_gap,
    add_workers,
    build_search_config,
    placers_help,
    read_restrictions,
)
from tf_placer.cli.optimize_output import answer_result, check_output_graph, write_output_graph
from tf_placer.errors import require_tensorflow
from tf_placer.placers import AUTO
from tf_placer.text.notes import say
from tf_placer.text.stages import Stages

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Times steps of the original, on each device, and split by layer; then lets a placer "
    "search. The fastest placements are measured again beside the original. The output is the "
    "graph with devices, or the original if nothing is faster. Ctrl-C ends the search with "
    "the best so far, after a short confirmation."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.epilog = placers_help()
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--output_graph", help=OUTPUT_HELP)
    add_step(parser)
    parser.add_argument("--machine", default="attached", help=MACHINE_HELP)
    add_placer(parser, AUTO)
    parser.add_argument(
        "--max_trials",
        type=int,
        default=150,
        help="maximum number of placements to measure (default 150)",
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=600.0,
        help="time limit in seconds, from the start to the end of the confirmation (default 600)",
    )
    add_stop_at_gap(parser)
    add_memory_goal(
        parser,
        fit="the search ends with the first placement that runs, or at once if the original does",
    )
    parser.add_argument(
        "--log_dir",
        help="directory for the log and the placement; give it again to resume a search; a "
        "temporary one by default",
    )
    parser.add_argument(
        "--report", help="file for a page about the search (.html); `report` can make it later"
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIRECTORY",
        help="directory for the runs `original` and `found` of TensorBoard: the graph by device "
        "and computing time, scalars and pictures",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    add_protocol(parser)
    add_answers(parser, otherwise="for the graph")
    add_clear_devices(parser)
    add_restrictions(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="only print the operations to place, the devices, the expected time, and missing "
        "arguments",
    )
    add_workers(
        parser,
        controlled="they measure the samples of all C controllers: with C times the batch_size of "
        "the placer no placement waits",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Optimizes a graph file, writes the result and prints the verdict.

    Raises:
        GraphError, ValueError, OSError, SearchError: as `optimize` raises them.
    """
    require_tensorflow()
    with Stages(say) as stages:
        stages.enter("importing TensorFlow")
        from tf_placer.inputs.feeds_file import read_feeds
        from tf_placer.inputs.workload import read_graph, remove_devices
        from tf_placer.live.dry_run import plan_search
        from tf_placer.live.entry_points import count_time_from, optimize
        from tf_placer.live.optimization_target import read_target

        stages.begin(f"reading {args.input_graph}")
        graph = read_graph(args.input_graph, args.signature)
        check_output_graph(args, graph)
        if args.clear_devices:
            graph = remove_devices(graph)
        step: dict[str, Any] = {
            "fetches": args.fetches,
            "feed_dict": None if args.feeds is None else read_feeds(args.feeds),
            "initializers": args.initializers,
        }
        names = ("machine", "report", "tensorboard", "answers", "require_answer", "protocol")
        settings = {name: getattr(args, name) for name in names} | read_restrictions(args)
        config = build_search_config(args, checkpoint=args.restore_from, **settings)
        if args.dry_run:
            given = read_target(graph, **step, checkpoint=args.restore_from, seed=args.seed)
            plan = plan_search(given, config)
            answer(args, plan.table(), {"plan": plan.to_json()})
            return
    with count_time_from(args.start_secs):
        result = optimize(graph, **step, config=config)
    error = write_output_graph(args, graph, result)
    answer_result(args, result, error)
    if not (result.changed or result.outcome.is_verdict):
        sys.exit(NO_VERDICT)
