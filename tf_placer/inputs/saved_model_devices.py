"""The devices that a SavedModel requests, and new names for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from graph_passes.device_map import RenameDevices, check_old_devices
from graph_passes.devices import has_device, rename_device
from graph_passes.errors import GraphError
from graph_passes.util.messages import quote

__all__ = ["check_saved_devices", "rename_saved_devices"]


def check_saved_devices(
    meta_graph: tf.compat.v1.MetaGraphDef, names: Sequence[str], owner: str
) -> None:
    """Checks that all devices exist that operations, functions and variables request.

    TensorFlow's loader would put them elsewhere without a word where soft placement is on.

    Args:
        meta_graph: a graph of a SavedModel, with its objects.
        names: the full names of all devices.
        owner: the owner of these devices, for the error message.

    Raises:
        GraphError: a device does not exist; the message names it and one of its operations.
    """
    known: dict[str, bool] = {}
    for device, holder in _list_requests(meta_graph):
        if device not in known:
            known[device] = has_device(device, names)
        if not known[device]:
            raise GraphError(
                f"the SavedModel has {holder} on {device}, and {owner} has only "
                f"{', '.join(names)}: {_advise(device, names)}, or place the original for these "
                "devices"
            )


def rename_saved_devices(
    saved_model: saved_model_pb2.SavedModel, device_map: Mapping[str, str]
) -> saved_model_pb2.SavedModel:
    """Renames the devices of operations, functions and variables.

    Args:
        saved_model: the graphs of a SavedModel; not changed.
        device_map: new names of devices by their old names, of `read_device_map`.

    Returns:
        A copy with the new names.

    Raises:
        GraphError: nothing is on a device that would be renamed.
    """
    requested = {device for graph in saved_model.meta_graphs for device, _ in _list_requests(graph)}
    check_old_devices(device_map, requested)
    result = saved_model_pb2.SavedModel()
    result.CopyFrom(saved_model)
    for meta_graph in result.meta_graphs:
        meta_graph.graph_def.CopyFrom(RenameDevices(device_map).run(meta_graph.graph_def))
        for node in meta_graph.object_graph_def.nodes:
            if node.WhichOneof("kind") == "variable" and node.variable.device:
                node.variable.device = rename_device(node.variable.device, device_map)
    return result


def _list_requests(meta_graph: tf.compat.v1.MetaGraphDef) -> Iterator[tuple[str, str]]:
    """Yields each requested device with a phrase that names the operation or variable on it."""
    for node in meta_graph.graph_def.node:
        if node.device:
            yield node.device, quote(node.name)
    for function in meta_graph.graph_def.library.function:
        for node in function.node_def:
            if node.device:
                name = quote(function.signature.name)
                yield node.device, f"{quote(node.name)} of the function {name}"
    for saved in meta_graph.object_graph_def.nodes:
        if saved.WhichOneof("kind") == "variable" and saved.variable.device:
            yield saved.variable.device, f"the variable {quote(saved.variable.name)}"


def _advise(device: str, names: Sequence[str]) -> str:
    """Advises what to do about a missing device."""
    job = device[: device.find("/", 1) + 1]
    if job.startswith("/job:") and not any(name.startswith(job) for name in names):
        return (
            "connect the process to the machine that it was placed for, such as by "
            "tf_placer.connect(tf_placer.find_machine('local:2'))"
        )
    # The last device, since the first is a CPU.
    example = f"{device.rpartition('/device:')[2]}={names[-1].rpartition('/device:')[2]}"
    return f"rename the device, such as by {example} (device_map, --map)"
