"""The command `apply`: writes the devices of a saved placement into a graph file."""

from __future__ import annotations

import argparse

from graph_passes.placement import Placement, read_placement
from tf_placer.cli.answer import add_json, answer
from tf_placer.cli.arguments import (
    GRAPH_HELP,
    OUTPUT_HELP,
    PLACEMENT_HELP,
    add_clear_devices,
    add_device_map,
    add_signature,
    read_device_pairs,
)
from tf_placer.errors import require_tensorflow
from tf_placer.text.units import format_step

__all__ = ["DESCRIPTION", "add_arguments", "run"]

DESCRIPTION = (
    "Writes the devices of a placement into a graph, which may have been built anew since, and "
    "reports what did not match."
)
_MAX_NAMES = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.add_argument("--input_graph", required=True, help=GRAPH_HELP)
    parser.add_argument("--placement", required=True, help=PLACEMENT_HELP)
    parser.add_argument("--output_graph", required=True, help=OUTPUT_HELP)
    add_signature(parser)
    add_clear_devices(parser)
    add_device_map(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> None:
    """Writes the devices of a saved placement into a graph, and prints what did not match.

    Raises:
        GraphError: a file is not a graph or a placement, or no operation of the placement is in
            the graph.
        OSError: a file cannot be read or written.
    """
    pairs = read_device_pairs(args)
    require_tensorflow()
    from graph_passes.annotate import Annotate, DropDanglingColocation
    from graph_passes.device_map import (
        RenameDevices,
        check_old_devices,
        list_devices,
        read_device_map,
    )
    from graph_passes.errors import GraphError
    from graph_passes.fingerprint import graph_fingerprint
    from graph_passes.fitting import fit
    from tf_placer.inputs.graph_files import check_output, write_graph
    from tf_placer.inputs.saved_model_devices import rename_saved_devices
    from tf_placer.inputs.saved_model_files import check_new_directory, write_saved_model
    from tf_placer.inputs.workload import read_graph, remove_devices

    device_map = read_device_map(pairs)
    graph = read_graph(args.input_graph, args.signature)
    placement = read_placement(args.placement)
    if graph.signature is None:
        check_output(args.output_graph, args.input_graph, args.placement)
    else:
        check_new_directory(args.output_graph, args.input_graph)
    if args.clear_devices:
        graph = remove_devices(graph)
    graph_def = DropDanglingColocation().run(graph.graph_def)
    op_graph = graph.read_columns(graph_def)
    try:
        fitted = fit(op_graph, placement)
    except GraphError as error:
        raise GraphError(f"{args.placement!r} on {args.input_graph!r}: {error}") from None
    if graph.signature is None:
        placed = Annotate(fitted.assignment).run(graph_def)
        check_old_devices(device_map, set(list_devices(placed)))
        placed = RenameDevices(device_map).run(placed)
        write_graph(args.output_graph, placed, graph.meta_graph)
    else:
        saved_model = graph.signature.build_placed_model(fitted.assignment)
        saved_model = rename_saved_devices(saved_model, device_map)
        write_saved_model(args.output_graph, saved_model, args.input_graph)
    same = graph_fingerprint(graph_def) == placement.graph_fingerprint
    lines = [
        _describe_plan(placement)
        if placement.is_planned
        else f"the graph is {'the one' if same else 'not the one'} the placement was made for",
        f"placed: {len(fitted.assignment)} of {op_graph.num_operations} operations",
    ]
    if placement.is_planned and len(fitted.assignment) < op_graph.num_operations:
        lines[-1] += "; the others are not of the step, such as those of savers, or have to stay"
    if not same:
        lines += _list_names("in the placement but not in the graph", list(fitted.missing))
    # A plan has the operations of a step only.
    if not same and not placement.is_planned:
        lines += _list_names("in the graph but not in the placement", list(fitted.unplaced))
    lines += _list_names("refused", [f"{name}: {why}" for name, why in fitted.refused.items()])
    values = {
        "is_same_graph": None if placement.is_planned else same,
        "fits": placement.measurement.get("fits", True) if placement.is_planned else None,
        "operations": op_graph.num_operations,
        "placed": len(fitted.assignment),
        "not_in_graph": list(fitted.missing),
        "not_in_placement": list(fitted.unplaced),
        "refused": dict(fitted.refused),
        "output_graph": args.output_graph,
    }
    answer(args, "\n".join([*lines, f"graph: {args.output_graph}"]), values)


def _describe_plan(placement: Placement) -> str:
    """Describes the step that was planned, for a line of the answer."""
    step_secs = placement.measurement.get("simulated_step_secs")
    step = "none that may run" if step_secs is None else f"{format_step(step_secs)} by simulation"
    fits = "" if placement.measurement.get("fits", True) else ", which does not fit the memory"
    return f"planned step: {step}{fits}"


def _list_names(title: str, items: list[str]) -> list[str]:
    """Formats a line with the first items; no line if there are none."""
    if not items:
        return []
    more = f", and {len(items) - _MAX_NAMES} more" if len(items) > _MAX_NAMES else ""
    return [f"{title} ({len(items)}): {', '.join(items[:_MAX_NAMES])}{more}"]
