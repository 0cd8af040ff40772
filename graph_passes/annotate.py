"""The passes that write to device and colocation fields."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass

__all__ = ["Annotate", "ClearDevices", "DropDanglingColocation"]

_CLASS = "_class"
_LOCATION = b"loc:@"


class Annotate(GraphPass):
    """A pass that writes the devices of a placement.

    Operations that already have a device keep it.
    """

    def __init__(self, assignment: Mapping[str, str]) -> None:
        """Makes the pass.

        Args:
            assignment: the devices of operations, by the operation's name.
        """
        self._assignment = assignment

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Writes devices into a copy of the graph.

        Raises:
            GraphError: the assignment names an operation that the graph does not have.
        """
        nodes = {node.name: i for i, node in enumerate(graph_def.node)}
        for name in self._assignment:
            if name not in nodes:
                raise GraphError(f"the placement names {name!r}, which is not in the graph")
        writes = [
            (nodes[name], device)
            for name, device in self._assignment.items()
            if device and not graph_def.node[nodes[name]].device
        ]
        if not writes:
            return graph_def
        placed = _copy(graph_def)
        for i, device in writes:
            placed.node[i].device = device
        return placed


class ClearDevices(GraphPass):
    """A pass that clears all device fields, so that all can be placed anew."""

    def __init__(self, *, in_functions: bool = True) -> None:
        """Makes the pass.

        Args:
            in_functions: whether operations in functions lose their devices, too.
        """
        self._in_functions = in_functions

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Clears the device fields of a copy."""
        cleared = _copy(graph_def)
        modified = False
        library = cleared.library.function if self._in_functions else ()
        functions = (function.node_def for function in library)
        for nodes in (cleared.node, *functions):
            for node in nodes:
                modified = modified or bool(node.device)
                node.device = ""
        return cleared if modified else graph_def


class DropDanglingColocation(GraphPass):
    """A pass that drops `loc:@` attributes which name missing operations.

    Copied and pruned graphs keep such attributes, and TensorFlow refuses to import them.
    """

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Drops the attributes from a copy."""
        names = {node.name.encode() for node in graph_def.node}

        def filter_locations(node: tf.compat.v1.NodeDef) -> list[bytes]:
            return [
                value
                for value in node.attr[_CLASS].list.s
                if not value.startswith(_LOCATION) or value[len(_LOCATION) :] in names
            ]

        dangling = [
            i
            for i, node in enumerate(graph_def.node)
            if _CLASS in node.attr and len(filter_locations(node)) < len(node.attr[_CLASS].list.s)
        ]
        if not dangling:
            return graph_def
        result = _copy(graph_def)
        for i in dangling:
            node = result.node[i]
            values = filter_locations(node)
            if values:
                node.attr[_CLASS].list.s[:] = values
            else:
                del node.attr[_CLASS]
        return result


def _copy(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    return copy
