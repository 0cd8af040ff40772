"""Fitting of a saved placement to a graph, which may have been rebuilt."""

from __future__ import annotations

from graph_passes.colocation import find_colocation_groups
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.placement import FittedPlacement, Placement, fit_placement

__all__ = ["fit"]


# With a smaller share of names in common, of the graph or of the placement, graphs are not of the
# same model. The graph of an inference has few of the operations of a training step, but the
# placement of that names nearly all of them.
_LEAST_COMMON_SHARE = 0.5


def fit(graph: OpGraph, placement: Placement, *, may_grow: bool = False) -> FittedPlacement:
    """Fits a placement to a graph.

    Args:
        graph: the graph.
        placement: the placement.
        may_grow: whether operations may be added to the graph later, which has none of them yet.

    Returns:
        The devices to write, and the entries that do not match. Its assignment is empty for a
        graph that already has these devices.

    Raises:
        GraphError: no entry of the placement fits the graph, or it is that of another graph; the
            message tells why.
    """
    fitted = fit_placement(graph, find_colocation_groups(graph), placement)
    if not may_grow:
        _check_common(graph, placement, len(placement.assignment) - len(fitted.missing))
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


def _check_common(graph: OpGraph, placement: Placement, num_common: int) -> None:
    """Checks that a placement is not that of another graph which has a few names in common.

    Raises:
        GraphError: it is.
    """
    smaller = min(len(placement.assignment), graph.num_operations)
    if 0 < num_common < _LEAST_COMMON_SHARE * smaller:
        raise GraphError(
            f"the placement is that of another graph: of its {len(placement.assignment):,} "
            f"operations {num_common:,} are among the {graph.num_operations:,} of this one. "
            "Another batch or code changes names; so do Keras' recurrent layers, which are other "
            "operations on a computer with GPUs: plan the graph as it is where it runs"
        )
