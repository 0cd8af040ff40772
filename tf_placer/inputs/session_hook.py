"""A hook that applies a saved placement to the graph of a MonitoredTrainingSession."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence

import tensorflow as tf
from absl import logging

from graph_passes.errors import GraphError
from graph_passes.fitting import fit
from graph_passes.op_graph import OpGraph
from graph_passes.placement import Placement, read_placement

__all__ = ["PlacementHook", "apply_placement"]


def apply_placement(
    graph: tf.Graph,
    placement: Placement,
    *,
    fetches: Sequence[str] = (),
    may_grow: bool = False,
    sent: int = 0,
) -> int:
    """Sets the devices of a placement on a graph, in place.

    Operations that have a device keep it. Call this before the session is created, because a
    session does not see later changes.

    Args:
        graph: the graph; it may be finalized, and it may be a rebuilt copy of the placed graph.
        placement: the placement.
        fetches: the fetches of the placed step, if they are known.
        may_grow: whether missing operations may be added to the graph later, so that they are not
            worth a warning.
        sent: the number of leading operations that sessions already know; they are not changed.

    Returns:
        The number of operations that got a device.

    Raises:
        GraphError: nothing of the placement fits the graph.
    """
    op_graph = OpGraph.from_graph_def(graph.as_graph_def(), fetches)
    fitted = fit(op_graph, placement, may_grow=may_grow)
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


# The job of a session without a master, which runs in its own process.
_IN_PROCESS = "/job:localhost/"


def _check_master(placement: Placement) -> None:
    """Checks that a placement for other processes is not applied to a session without a master.

    TensorFlow's own error would name an operation, but no remedy.

    Raises:
        GraphError: all devices of the placement are in other processes, and the session that calls
            the hook is not connected to one.
    """
    elsewhere = [device for device in placement.devices if not device.startswith(_IN_PROCESS)]
    if len(elsewhere) < len(placement.devices) or _find_master() != "":
        return
    spec = placement.provenance.get("machine", "local:2")
    start = f"`python -m tf_placer serve {spec}`" if str(spec).startswith("local:") else spec
    raise GraphError(
        f"the placement is for {', '.join(elsewhere)}, and the session is connected to no such "
        f"machine: pass master='grpc://HOST:PORT', the address that {start} has"
    )


def _find_master() -> str | None:
    """Finds the master of the monitored session that calls `begin`; None if it is unknown."""
    frame = inspect.currentframe()
    while frame is not None:
        names = frame.f_locals
        # TensorFlow's monitored sessions call their hooks in this method, from 2.14 to 2.21.
        if frame.f_code.co_name == "__init__" and {"session_creator", "hooks"} <= names.keys():
            creator = names["session_creator"]
            if creator is None:
                return None if names.get("worker_context") else ""
            return getattr(creator, "_master", None)
        frame = frame.f_back
    return None


class PlacementHook(tf.compat.v1.train.SessionRunHook):
    """A session hook that applies a saved placement before the session is created.

    Example:
        >>> hook = PlacementHook("run/placement.json")
        >>> with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
        ...     session.run(train_op)
    """

    def __init__(self, placement: Placement | str | os.PathLike[str]) -> None:
        """Creates the hook.

        Args:
            placement: the placement or the path of its file.

        Raises:
            GraphError: the file is not a placement.
            OSError: the file cannot be read.
        """
        if isinstance(placement, str | os.PathLike):
            placement = read_placement(placement)
        if not isinstance(placement, Placement):
            raise GraphError(
                "a hook takes a placement or the path of its file, not a value of type "
                f"{type(placement).__name__}"
            )
        self._placement = placement

    def begin(self) -> None:
        """Applies the placement; TensorFlow calls this before it creates the session.

        Raises:
            GraphError: nothing of the placement fits the graph, or the session is not connected to
                the machine of the placement.
        """
        _check_master(self._placement)
        placed = apply_placement(tf.compat.v1.get_default_graph(), self._placement)
        logging.info("placed %d operations", placed)
