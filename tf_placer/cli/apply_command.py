"""The command `apply`: a graph file and a saved placement in, the graph with devices out."""

from __future__ import annotations

import argparse

from tf_placer.cli.arguments import GRAPH_HELP, add_clear_devices
from tf_placer.errors import require_tensorflow

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Writes the devices of a placement into a graph, which may have been built anew since, and "
    "reports what did not match."
)
_SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds what the command takes."""
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--placement", required=True, help="placement.json of a search")
    parser.add_argument("--output_graph", required=True, help="where the graph goes; by ending")
    add_clear_devices(parser)


def run(args: argparse.Namespace) -> None:
    """Puts a saved placement on a graph file and prints what did not match.

    Raises:
        GraphError: a file cannot be read or written, or nothing of the placement fits the graph.
    """
    require_tensorflow()
    from graph_passes.annotate import Annotate, ClearDevices, DropDanglingColocation
    from graph_passes.errors import GraphError
    from graph_passes.fingerprint import graph_fingerprint
    from graph_passes.fitting import fit
    from graph_passes.graph_pass import GraphPass, GraphState, Sequential
    from graph_passes.op_graph import OpGraph
    from graph_passes.placement import read_placement
    from tf_placer.inputs.graph_files import check_output, write_graph
    from tf_placer.inputs.sources import read_graph

    graph = read_graph(args.input_graph)
    placement = read_placement(args.placement)
    check_output(args.output_graph)
    passes: list[GraphPass] = [ClearDevices()] if args.clear_devices else []
    passes.append(DropDanglingColocation())
    graph_def = Sequential(passes).run(GraphState(graph.graph_def)).state.graph_def
    op_graph = OpGraph.from_graph_def(graph_def)
    try:
        fitted = fit(op_graph, placement)
    except GraphError as error:
        raise GraphError(f"{args.placement!r} on {args.input_graph!r}: {error}") from None
    state = Annotate().run(GraphState(graph_def, placement=fitted.as_placement(placement))).state
    write_graph(args.output_graph, state.graph_def, graph.meta_graph)
    same = graph_fingerprint(graph_def) == placement.graph_fingerprint
    print("the graph is", "the one" if same else "not the one", "the placement was made for")
    print(f"placed: {len(fitted.assignment)} of {op_graph.num_operations} operations")
    if not same:
        _print_some("in the placement but not in the graph", list(fitted.missing))
        _print_some("in the graph but not in the placement", list(fitted.unplaced))
    _print_some("refused", [f"{name}: {why}" for name, why in fitted.refused.items()])
    print("graph:", args.output_graph)


def _print_some(what: str, items: list[str]) -> None:
    if items:
        more = f", and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
        print(f"{what} ({len(items)}): {', '.join(items[:_SHOWN])}{more}")
