"""What the commands do that work on graph files."""

from __future__ import annotations

import zipfile
import zlib
from typing import Any

import numpy as np

from graph_passes.annotate import Annotate, ClearDevices, DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.fingerprint import graph_fingerprint
from graph_passes.fitting import fit
from graph_passes.graph_pass import GraphPass, GraphState, Sequential
from graph_passes.op_graph import OpGraph
from graph_passes.placement import read_placement
from tf_placer.inputs.sources import check_output, read_graph, with_graph, write_graph
from tf_placer.live.optimization import optimize

__all__ = ["apply_file", "optimize_file", "read_feeds"]

_SHOWN = 5


def optimize_file(
    input_graph: str,
    output_graph: str | None,
    *,
    feeds_path: str | None,
    clear_devices: bool,
    **settings: Any,
) -> None:
    """Optimises a graph file, writes the result and prints what came of it.

    Args:
        input_graph: path of the graph.
        output_graph: path for the result, or None.
        feeds_path: `.npz` file of values by placeholder, or None.
        clear_devices: whether to clear the devices that the graph came with.
        **settings: as `optimize` takes them.

    Raises:
        GraphError, ValueError, OSError, SearchError: as `optimize` raises them.
    """
    graph = read_graph(input_graph)
    if output_graph is not None:
        check_output(output_graph)
    if clear_devices:
        state = ClearDevices().run(GraphState(graph.graph_def)).state
        graph = with_graph(graph, state.graph_def)
    feeds = None if feeds_path is None else read_feeds(feeds_path)
    result = optimize(graph.meta_graph or graph.graph_def, feeds=feeds, **settings)
    if output_graph is not None:
        write_graph(output_graph, result.graph_def, graph.meta_graph)
    if result.table():
        print(result.table(), end="\n\n")
    if result.explanation is not None:
        print(result.explanation_table(), end="\n\n")
    print("placed" if result.changed else "unchanged", "-", result.reason)
    if output_graph is not None:
        print("graph:", output_graph)
    if result.placement is not None and result.log_dir is not None:
        print("placement:", result.log_dir / "placement.json")
    if result.log_dir is not None:
        print("log:", result.log_dir)


def apply_file(
    input_graph: str, placement_path: str, output_graph: str, *, clear_devices: bool
) -> None:
    """Puts a saved placement on a graph file and prints what did not match.

    Args:
        input_graph: path of the graph.
        placement_path: path of the placement.
        output_graph: path for the result.
        clear_devices: whether to clear the devices that the graph came with.

    Raises:
        GraphError: a file cannot be read or written, or nothing of the placement fits the graph.
    """
    graph = read_graph(input_graph)
    placement = read_placement(placement_path)
    check_output(output_graph)
    passes: list[GraphPass] = [ClearDevices()] if clear_devices else []
    passes.append(DropDanglingColocation())
    graph_def = Sequential(passes).run(GraphState(graph.graph_def)).state.graph_def
    op_graph = OpGraph.from_graph_def(graph_def)
    try:
        fitted = fit(op_graph, placement)
    except GraphError as error:
        raise GraphError(f"{placement_path!r} on {input_graph!r}: {error}") from None
    state = Annotate().run(GraphState(graph_def, placement=fitted.as_placement(placement))).state
    write_graph(output_graph, state.graph_def, graph.meta_graph)
    same = graph_fingerprint(graph_def) == placement.graph_fingerprint
    print("the graph is", "the one" if same else "not the one", "the placement was made for")
    print(f"placed: {len(fitted.assignment)} of {op_graph.num_operations} operations")
    if not same:
        _print_some("in the placement but not in the graph", list(fitted.missing))
        _print_some("in the graph but not in the placement", list(fitted.unplaced))
    _print_some("refused", [f"{name}: {why}" for name, why in fitted.refused.items()])
    print("graph:", output_graph)


def _print_some(what: str, items: list[str]) -> None:
    if items:
        more = f", and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
        print(f"{what} ({len(items)}): {', '.join(items[:_SHOWN])}{more}")


def read_feeds(path: str) -> dict[str, np.ndarray]:
    """Reads values by placeholder.

    Args:
        path: an `.npz` file.

    Raises:
        GraphError: it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                raise ValueError("no zip archive")
            file.seek(0)
            with np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise GraphError(f"cannot read the feeds {path!r}: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise GraphError(f"the feeds {path!r} are not an .npz file: {error}") from error
