"""Output of the command `optimize`: the graph file and the answer."""

from __future__ import annotations

import argparse
import pathlib
from typing import TYPE_CHECKING

from graph_passes.errors import GraphError
from tf_placer.cli.answer import answer
from tf_placer.errors import describe_error

if TYPE_CHECKING:
    from tf_placer.inputs.workload import InputGraph
    from tf_placer.live.result import OptimizeResult

__all__ = ["answer_result", "check_output_graph", "write_output_graph"]


def check_output_graph(args: argparse.Namespace, graph: InputGraph) -> None:
    """Checks, before any work, that the output graph can be written.

    Raises:
        GraphError, OSError: it cannot be written, or would replace another file of the command.
    """
    from tf_placer.inputs.graph_files import check_output
    from tf_placer.inputs.saved_model_files import check_new_directory
    from tf_placer.runs.own_files import own_paths
    from tf_placer.runs.run_directory import RunDirectory

    if args.output_graph is None:
        return
    if graph.signature is not None:
        # A search that resumes replaces the SavedModel that it has written before.
        record = None if args.log_dir is None else RunDirectory(args.log_dir).saved_models
        check_new_directory(args.output_graph, args.input_graph, record)
    else:
        others = (args.input_graph, args.feeds, args.report, *own_paths(args.log_dir))
        check_output(args.output_graph, *others)


def write_output_graph(
    args: argparse.Namespace, graph: InputGraph, result: OptimizeResult
) -> str | None:
    """Writes the graph of a result.

    Returns:
        The error, if the graph cannot be written: the answer comes first, because a search of
        minutes is worth printing.
    """
    from tf_placer.inputs.graph_files import write_graph
    from tf_placer.live.result import SavedModelResult

    try:
        if args.output_graph is not None and isinstance(result, SavedModelResult):
            result.save(args.output_graph)
        elif args.output_graph is not None:
            write_graph(args.output_graph, result.graph_def, graph.meta_graph)
    except (GraphError, OSError) as error:
        return describe_error(error)
    return None


def answer_result(args: argparse.Namespace, result: OptimizeResult, error: str | None) -> None:
    """Prints a result.

    Args:
        args: the arguments of the command.
        result: the result.
        error: why the output graph was not written; None if it was.

    Raises:
        OSError: the output graph was not written.
    """
    has_log = result.log_dir is not None
    log_dir = result.log_dir
    if log_dir is None and result.kept is not None and args.log_dir is not None:
        # The directory of a kept answer has its placement, but no trials.
        log_dir = pathlib.Path(args.log_dir).absolute()
    placement = None
    if result.placement is not None and log_dir is not None:
        placement = str(log_dir / "placement.json")
    written = args.output_graph if error is None else None
    files = {
        "graph" if result.changed else "copy of the original": written,
        "placement": placement,
        "log": log_dir,
        "report": args.report if has_log else None,
        "tensorboard": args.tensorboard if has_log else None,
    }
    lines = [f"{text}\n" for text in (result.table(), result.explanation_table()) if text]
    lines.append(f"{result.title} - {result.reason}")
    lines += [f"{title}: {path}" for title, path in files.items() if path is not None]
    values = {
        "output_graph": written,
        "placement": placement,
        "log_dir": None if log_dir is None else str(log_dir),
        "report": files["report"],
        "tensorboard": files["tensorboard"],
    }
    answer(args, "\n".join(lines), {**result.to_json(), **values})
    if error is not None and placement is not None:
        error += f": 'tf_placer apply' puts {placement!r} on a graph"
    if error is not None:
        raise OSError(error)
