"""A hook that puts a saved placement on the graph of a MonitoredTrainingSession."""

from __future__ import annotations

import os

import tensorflow as tf
from absl import logging

from graph_passes.fitting import fit
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement, read_placement

__all__ = ["PlacementHook", "apply_placement"]


def apply_placement(
    graph: tf.Graph, placement: Placement, *, may_grow: bool = False, sent: int = 0
) -> int:
    """Puts a placement on a graph, in place.

    Operations that have a device keep it. Call it before the session is made: a session does not
    see later changes.

    Args:
        graph: the graph; it may be finalised, and it may have been built anew since.
        placement: the placement.
        may_grow: whether operations that the graph lacks are to come, and not worth a warning.
        sent: how many operations, the first ones, sessions know; these stay as they are.

    Returns:
        How many operations were given a device.

    Raises:
        GraphError: nothing of the placement fits the graph.
    """
    op_graph = OpGraph.from_graph_def(graph.as_graph_def())
    fitted = fit(op_graph, placement)
    known = {operation.name for operation in graph.get_operations()[:sent]}
    assignment = {n: device for n, device in fitted.assignment.items() if n not in known}
    for name, device in assignment.items():
        graph.get_operation_by_name(name)._set_device(device)
    if fitted.refused or (fitted.missing and not may_grow):
        logging.warning(
            "the placement does not fit in full: %d of its operations are not in the graph, "
            "%d groups could not be placed",
            len(fitted.missing),
            len(fitted.refused),
        )
    return len(assignment)


class PlacementHook(tf.compat.v1.train.SessionRunHook):
    """Puts a saved placement on the graph before the session is made.

    Example:
        >>> hook = PlacementHook("run/placement.json")
        >>> with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        ...     session.run(train_op)
    """

    def __init__(self, placement: Placement | str | os.PathLike[str]) -> None:
        """Makes the hook.

        Args:
            placement: the placement or the path of its file.

        Raises:
            GraphError: the file cannot be read or is not a placement.
        """
        if not isinstance(placement, Placement):
            placement = read_placement(placement)
        self._placement = placement

    def begin(self) -> None:
        """Applies the placement; called by the session before it exists."""
        placed = apply_placement(tf.compat.v1.get_default_graph(), self._placement)
        logging.info("placed %d operations", placed)
