"""A saved placement on a graph that may have been built anew."""

from __future__ import annotations

from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.placement import FittedPlacement, Placement, fit_placement

__all__ = ["fit"]


def fit(graph: OpGraph, placement: Placement) -> FittedPlacement:
    """Fits a placement to a graph, or says why nothing of it fits.

    Args:
        graph: the graph.
        placement: the placement.

    Returns:
        What to write, and what did not match. There is nothing to write on a graph that has these
        devices already.

    Raises:
        GraphError: the placement has nothing to do with the graph, or cannot be put on it.
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
