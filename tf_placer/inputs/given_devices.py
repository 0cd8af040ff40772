"""Compares the devices that operations of a graph request with the devices of a machine."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message

from graph_passes.clearing_advice import CLEARING_ARGUMENT, advise_clearing, find_clearing_setting
from graph_passes.devices import has_device
from graph_passes.errors import GraphError
from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph
from graph_passes.util.messages import quote
from tf_placer.machines.machine import Machine

__all__ = ["check_given_devices", "describe_given_devices", "describe_immovable_step"]

# The share of operations with a device from which on nearly nothing of a step can move.
_IMMOVABLE_SHARE = 0.9


def check_given_devices(
    graph: OpGraph,
    machine: Machine,
    initializers: Sequence[str] = (),
    *,
    soft: bool = False,
    advice: str | None = None,
) -> None:
    """Checks, as TensorFlow does, that a machine has the devices that a graph requests.

    Args:
        graph: the graph, with the operations of the step marked.
        machine: the machine.
        initializers: names of operations that run before the first step.
        soft: whether sessions have `allow_soft_placement`, so that only job and task must match.
        advice: the remedy, for the error message; by default to clear the devices.

    Raises:
        GraphError: a needed operation, or a function that it runs, requests a device that the
            machine does not have.
    """
    names = [device.name for device in machine.devices]
    known: dict[tuple[str, bool], bool] = {}

    def is_there(device: str, soft: bool) -> bool:
        if (device, soft) not in known:
            known[device, soft] = not device or has_device(device, names, soft=soft)
        return known[device, soft]

    needed = graph.needed
    if initializers:
        needed = needed | graph.restrict(initializers).needed
    nodes = [graph.graph_def.node[i] for i in np.flatnonzero(needed).tolist()]
    if advice is None:
        advice = advise_clearing()
        if find_clearing_setting() == CLEARING_ARGUMENT:
            advice += (
                ", or give a session_config with allow_soft_placement, which lets operations run "
                "on another type of device"
            )
    for node, where in _find_missing_devices(
        nodes, FunctionLibrary(graph.graph_def), is_there, soft=soft
    ):
        raise GraphError(
            f"the graph has {quote(node.name)}{where} on {node.device}, and {machine.spec} has "
            f"only {', '.join(names)}: {advice}"
        )


def describe_given_devices(graph: OpGraph) -> str | None:
    """Describes which operations keep their device because the graph requests it.

    Args:
        graph: the graph, with the operations of the step marked.

    Returns:
        A sentence without a full stop; None if no operation of the step requests a device.
    """
    devices = _count_given_devices(graph)
    if not devices:
        return None
    count = devices.total()
    setting = find_clearing_setting()
    clear = "" if setting is None else f", or clear its devices ({setting})"
    keep = "1 operation of the step keeps" if count == 1 else f"{count} operations of the step keep"
    return (
        f"{keep} the device that the graph came with, such as "
        f"{quote(devices.most_common(1)[0][0])}: to have it chosen, build the graph without "
        f"tf.device{clear}"
    )


def describe_immovable_step(graph: OpGraph, min_share: float = _IMMOVABLE_SHARE) -> str | None:
    """Describes a step of which nearly nothing can move because of the devices in the graph.

    Args:
        graph: the graph, with the operations of the step marked.
        min_share: the share of operations that the graph must have on a device for a description.

    Returns:
        A sentence without a full stop; None if enough operations can move.
    """
    devices, num_needed = _count_given_devices(graph), int(graph.needed.sum())
    count = devices.total()
    if not count or count <= min_share * num_needed:
        return None
    device, most = devices.most_common(1)[0]
    where = f"on {quote(device)}"
    if most < count:
        where = f"on their devices ({most} of them on {quote(device)})"
    return (
        f"{count} of {num_needed} operations of the step are {where} because the graph says so: "
        f"{advise_clearing()} to let them move"
    )


def _count_given_devices(graph: OpGraph) -> collections.Counter[str]:
    """Counts the operations of the step by the device that the graph requests for them."""
    nodes = (graph.graph_def.node[i] for i in np.flatnonzero(graph.needed).tolist())
    return collections.Counter(node.device for node in nodes if node.device)


def _find_missing_devices(
    nodes: Sequence[tf.compat.v1.NodeDef],
    functions: FunctionLibrary,
    is_there: Callable[[str, bool], bool],
    *,
    soft: bool,
) -> Iterator[tuple[tf.compat.v1.NodeDef, str]]:
    """Yields operations on missing devices, with a phrase that names the function they are in."""
    pending: list[tuple[str | None, bool]] = [(None, soft)]
    seen = set(pending)
    while pending:
        name, is_soft = pending.pop()
        body = nodes if name is None else functions.body(name)
        where = "" if name is None else f" of the function {quote(name)}"
        for node in body:
            if not is_there(node.device, is_soft):
                yield node, where
            for called in functions.find_callees(node):
                inner = (called, is_soft or _allows_soft_placement(node))
                if inner not in seen:
                    seen.add(inner)
                    pending.append(inner)


def _allows_soft_placement(call: tf.compat.v1.NodeDef) -> bool:
    """Says whether a call has a configuration of its own that allows soft placement.

    Calls of a `tf.function` have one, regardless of the session's configuration.
    """
    if "config_proto" not in call.attr:
        return False
    try:
        config = tf.compat.v1.ConfigProto.FromString(call.attr["config_proto"].s)
    except message.DecodeError:
        return False
    return config.allow_soft_placement
