"""Fitting of a saved placement to a graph, which may have been rebuilt."""

from __future__ import annotations

from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.placement import FittedPlacement, Placement, fit_placement

__all__ = ["fit"]


def fit(graph: OpGraph, placement: Placement) -> FittedPlacement:
    """Fits a placement to a graph.

    Args:
        graph: the graph.
        placement: the placement.

    Returns:
        The devices to write, and the entries that do not match. Its assignment is empty for a
        graph that already has these devices.

    Raises:
        GraphError: no entry of the placement fits the graph; the message tells why.
    """
    fitted = fit_placement(graph, find_colocation_groups(graph), placement)
    if fitted.assignment or not placement.assignment:
        return fitted
    if len(fitted.missing) == len(placement.assignment):
        raise GraphError(
            f"nothing of the placement fits the graph: none of its {len(fitted.missing)} "
            f"operations is in it, such as {fitted.missing[0]!r}"
        )
    for name, reason in fitted.refused.items():
        raise GraphError(f"nothing of the placement fits the graph: {name!r}: {reason}")
    return fitted
