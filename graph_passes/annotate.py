"""The passes that write to a graph."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass

__all__ = ["Annotate", "ClearDevices", "DropDanglingColocation"]

_CLASS = "_class"
_LOCATION = b"loc:@"


class Annotate(GraphPass):
    """Writes devices into the device fields, and nothing else.

    An operation that came with a device keeps it.
    """

    def __init__(self, assignment: Mapping[str, str]) -> None:
        """Makes the pass.

        Args:
            assignment: the devices of operations, by name.
        """
        self._assignment = assignment

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Writes devices into a copy of the graph.

        Raises:
            GraphError: there is a device for an operation that the graph does not have.
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
    """Clears all device fields, functions included, so that everything can be placed anew."""

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Clears the fields of a copy."""
        cleared = _copy(graph_def)
        modified = False
        functions = (function.node_def for function in cleared.library.function)
        for nodes in (cleared.node, *functions):
            for node in nodes:
                modified = modified or bool(node.device)
                node.device = ""
        return cleared if modified else graph_def


class DropDanglingColocation(GraphPass):
    """Drops `loc:@` attributes that name operations which are not there.

    Copied and pruned graphs keep such names, and TensorFlow then refuses to import them.
    """

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Drops the names from a copy."""
        names = {node.name.encode() for node in graph_def.node}

        def kept(node: tf.compat.v1.NodeDef) -> list[bytes]:
            return [
                value
                for value in node.attr[_CLASS].list.s
                if not value.startswith(_LOCATION) or value[len(_LOCATION) :] in names
            ]

        dangling = [
            i
            for i, node in enumerate(graph_def.node)
            if _CLASS in node.attr and len(kept(node)) < len(node.attr[_CLASS].list.s)
        ]
        if not dangling:
            return graph_def
        result = _copy(graph_def)
        for i in dangling:
            node = result.node[i]
            values = kept(node)
            if values:
                node.attr[_CLASS].list.s[:] = values
            else:
                del node.attr[_CLASS]
        return result


def _copy(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    return copy
