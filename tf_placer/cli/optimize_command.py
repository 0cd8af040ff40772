"""The command `optimize`: a graph file in, the graph with faster devices out."""

from __future__ import annotations

import argparse
from typing import Any

from graph_passes.errors import GraphError
from tf_placer.cli.answer import add_json, answer
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
from tf_placer.errors import error_text, require_tensorflow
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
    parser.add_argument(
        "--report", help="where a page about the search goes (.html); `report` makes it later, too"
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIRECTORY",
        help="gets the runs `original` and `found` for TensorBoard: the graph by device and "
        "computing time, scalars and pictures",
    )
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    add_clear_devices(parser)
    parser.add_argument(
        "--dry_run",
        action="store_true",
        help="only say what would be placed where, how long it may take, and what is missing",
    )
    add_workers(
        parser,
        controlled="they measure what all C controllers sample: C times the batch_size of the "
        "placer lets no placement wait",
    )
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Optimizes a graph file, writes the result and prints what came of it.

    Raises:
        GraphError, ValueError, OSError, SearchError: as `optimize` raises them.
    """
    require_tensorflow()
    from tf_placer.inputs.feeds_file import read_feeds
    from tf_placer.inputs.graph_files import check_output, write_graph
    from tf_placer.inputs.saved_model_files import check_new_directory
    from tf_placer.inputs.sources import read_graph, without_devices
    from tf_placer.live.dry_run import plan_search
    from tf_placer.live.entry_points import counted_from, optimize
    from tf_placer.live.given_step import read_step
    from tf_placer.live.result import SavedModelResult
    from tf_placer.runs.own_files import own_paths
    from tf_placer.search.config import SearchConfig

    graph = read_graph(args.input_graph, args.signature)
    is_saved = graph.signature is not None
    if args.output_graph is not None:
        if is_saved:
            check_new_directory(args.output_graph, args.input_graph)
        else:
            others = (args.input_graph, args.feeds, args.report, *own_paths(args.log_dir))
            check_output(args.output_graph, *others)
    if args.clear_devices:
        graph = without_devices(graph)
    step: dict[str, Any] = {
        "fetches": args.fetches,
        "feeds": None if args.feeds is None else read_feeds(args.feeds),
        "initializers": args.initializers,
    }
    config = SearchConfig(
        machine=args.machine,
        placer=args.placer,
        placer_options=placer_options(args),
        max_trials=args.max_trials,
        max_secs=args.max_secs,
        seed=args.seed,
        log_dir=args.log_dir,
        report=args.report,
        tensorboard=args.tensorboard,
        restore_from=args.restore_from,
        workers=args.workers,
        num_workers=args.num_workers,
        controllers=args.controllers,
    )
    if args.dry_run:
        given = read_step(graph, **step, restore_from=args.restore_from, seed=args.seed)
        plan = plan_search(given, config)
        answer(args, plan.table(), {"plan": plan.to_json()})
        return
    with counted_from(args.start_secs):
        result = optimize(graph, **step, config=config)
    problem = None
    try:
        if args.output_graph is not None and isinstance(result, SavedModelResult):
            result.save(args.output_graph)
        elif args.output_graph is not None:
            write_graph(args.output_graph, result.graph_def, graph.meta_graph)
    except (GraphError, OSError) as error:
        problem = error_text(error)
    placement = None
    if result.placement is not None and result.log_dir is not None:
        placement = str(result.log_dir / "placement.json")
    report = args.report if result.log_dir is not None else None
    tensorboard = args.tensorboard if result.log_dir is not None else None
    places = {
        "graph": args.output_graph if problem is None else None,
        "placement": placement,
        "log": result.log_dir,
        "report": report,
        "tensorboard": tensorboard,
    }
    outcome = "placed" if result.changed else "unchanged"
    lines = [f"{text}\n" for text in (result.table(), result.explanation_table()) if text]
    lines.append(f"{outcome} - {result.reason}")
    lines += [f"{what}: {path}" for what, path in places.items() if path is not None]
    values = {"output_graph": places["graph"], "placement": placement, "report": report}
    values["tensorboard"] = tensorboard
    answer(args, "\n".join(lines), {**result.to_json(), **values})
    if problem is not None and placement is not None:
        problem += f": 'tf_placer apply' puts {placement!r} on a graph"
    if problem is not None:
        # The search took minutes: what it found was worth printing.
        raise OSError(problem)
