"""The devices that a graph comes with, against those of a machine."""

from __future__ import annotations

import numpy as np

from graph_passes.devices import has_device
from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tf_placer.machines.machine import Machine

__all__ = ["check_given_devices"]


_ADVICE = (
    "clear the graph's devices (--clear_devices), or allow_soft_placement in session_config where "
    "only the type of the device is another"
)


def check_given_devices(
    graph: OpGraph, machine: Machine, *, soft: bool = False, advice: str = _ADVICE
) -> None:
    """Makes sure that a machine has the devices that a graph comes with, as TensorFlow does.

    Args:
        graph: the graph, with what the step needs marked.
        machine: the machine.
        soft: whether sessions have `allow_soft_placement`, so that job and task alone must agree.
        advice: what the message says to do.

    Raises:
        GraphError: a needed operation is on a device that the machine does not have.
    """
    names = [device.name for device in machine.devices]
    known = {"": True}
    for i in np.flatnonzero(graph.needed).tolist():
        requested = graph.graph_def.node[i].device
        if requested not in known:
            known[requested] = has_device(requested, names, soft=soft)
        if not known[requested]:
            raise GraphError(
                f"the graph has {graph.names[i]!r} on {requested}, and {machine.spec} has only "
                f"{', '.join(names)}: {advice}"
            )
