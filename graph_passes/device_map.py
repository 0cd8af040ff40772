"""New names for the devices of a graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import tensorflow as tf

from graph_passes.devices import has_device, is_device_name, rename_device
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass
from graph_passes.util.messages import quote

__all__ = [
    "RenameDevices",
    "check_new_devices",
    "check_old_devices",
    "list_devices",
    "read_device_map",
]


def read_device_map(device_map: Mapping[str, str]) -> dict[str, str]:
    """Reads a map of devices that people wrote.

    Args:
        device_map: new devices by old devices, "GPU:0" or "/job:worker/task:1/device:GPU:0" each.

    Returns:
        New names of devices by their old names, in TensorFlow's form.

    Raises:
        GraphError: a side names no single device, or an old device stands there twice.
    """
    result: dict[str, str] = {}
    for old, new in device_map.items():
        name = _read_device(old)
        if name in result:
            raise GraphError(f"the device map has {name!r} twice: give each device one new name")
        result[name] = _read_device(new)
    return result


def _read_device(text: str) -> str:
    name = f"/device:{text}" if isinstance(text, str) and not text.startswith("/") else text
    if not is_device_name(name):
        raise GraphError(
            f"the device map has {quote(text)}, which names no device: write it like 'GPU:0' or "
            "'/job:worker/task:1/device:GPU:0'"
        )
    # Renaming a device to itself brings its name to one form.
    return rename_device(name, {name: name})


def check_old_devices(device_map: Mapping[str, str], names: Collection[str]) -> None:
    """Checks that a graph uses all devices that a map renames.

    Args:
        device_map: new names of devices by their old names.
        names: the names of devices in the graph.

    Raises:
        GraphError: nothing is on a device that would be renamed.
    """
    for old in device_map:
        if not any(has_device(old, [name]) for name in names):
            there = ", ".join(sorted(filter(None, names))) or "none"
            raise GraphError(
                f"the device map renames {old!r}, where nothing is: the devices in the graph are "
                f"{there}"
            )


def check_new_devices(device_map: Mapping[str, str], names: Sequence[str], owner: str) -> None:
    """Checks that the devices to which a map leads exist.

    Args:
        device_map: new names of devices by their old names.
        names: the full names of all devices.
        owner: the owner of these devices, for the error message.

    Raises:
        GraphError: a device does not exist.
    """
    for old, new in device_map.items():
        if not has_device(new, names):
            raise GraphError(
                f"the device map renames {old!r} to {new!r}, and {owner} has only "
                f"{', '.join(names)}: rename it to one of these"
            )


class RenameDevices(GraphPass):
    """A pass that renames the devices of operations, also in functions."""

    def __init__(self, device_map: Mapping[str, str]) -> None:
        """Makes the pass.

        Args:
            device_map: new names of devices by their old names, of `read_device_map`.
        """
        self._device_map = device_map

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Renames the devices in a copy."""
        new_names = {
            device: rename_device(device, self._device_map)
            for device in set(list_devices(graph_def))
        }
        if all(old == new for old, new in new_names.items()):
            return graph_def
        renamed = tf.compat.v1.GraphDef()
        renamed.CopyFrom(graph_def)
        for node in _list_nodes(renamed):
            if node.device:
                node.device = new_names[node.device]
        return renamed


def list_devices(graph_def: tf.compat.v1.GraphDef) -> Iterator[str]:
    """Yields the device of each operation that has one, also in functions."""
    return (node.device for node in _list_nodes(graph_def) if node.device)


def _list_nodes(graph_def: tf.compat.v1.GraphDef) -> Iterator[tf.compat.v1.NodeDef]:
    yield from graph_def.node
    for function in graph_def.library.function:
        yield from function.node_def
