"""The passes that write to a graph."""

from __future__ import annotations

import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass, GraphState, PassResult

__all__ = ["Annotate", "ClearDevices", "DropDanglingColocation"]

_CLASS = "_class"
_LOCATION = b"loc:@"


class Annotate(GraphPass):
    """Writes the devices of a placement into the device fields, and nothing else.

    An operation that came with a device keeps it.
    """

    def run(self, state: GraphState) -> PassResult:
        """Writes devices into a copy of the graph.

        Raises:
            GraphError: the placement names an operation that the graph does not have.
        """
        assert state.placement is not None, "Annotate needs a placement"
        assignment = dict(state.placement.assignment)
        nodes = {node.name: i for i, node in enumerate(state.graph_def.node)}
        for name in assignment:
            if name not in nodes:
                raise GraphError(f"the placement names {name!r}, which is not in the graph")
        writes = [
            (nodes[name], device)
            for name, device in assignment.items()
            if device and not state.graph_def.node[nodes[name]].device
        ]
        if not writes:
            return PassResult(state, modified=False)
        graph_def = _copy(state.graph_def)
        for i, device in writes:
            graph_def.node[i].device = device
        return PassResult(state.with_graph(graph_def), modified=True)


class ClearDevices(GraphPass):
    """Clears all device fields, functions included, so that everything can be placed anew."""

    def run(self, state: GraphState) -> PassResult:
        """Clears the fields of a copy."""
        graph_def = _copy(state.graph_def)
        modified = False
        functions = (function.node_def for function in graph_def.library.function)
        for nodes in (graph_def.node, *functions):
            for node in nodes:
                modified = modified or bool(node.device)
                node.device = ""
        if not modified:
            return PassResult(state, modified=False)
        return PassResult(state.with_graph(graph_def), modified=True)


class DropDanglingColocation(GraphPass):
    """Drops `loc:@` attributes that name operations which are not there.

    Copied and pruned graphs keep such names, and TensorFlow then refuses to import them.
    """

    def run(self, state: GraphState) -> PassResult:
        """Drops the names from a copy."""
        names = {node.name.encode() for node in state.graph_def.node}

        def kept(node: tf.compat.v1.NodeDef) -> list[bytes]:
            return [
                value
                for value in node.attr[_CLASS].list.s
                if not value.startswith(_LOCATION) or value[len(_LOCATION) :] in names
            ]

        dangling = [
            i
            for i, node in enumerate(state.graph_def.node)
            if _CLASS in node.attr and len(kept(node)) < len(node.attr[_CLASS].list.s)
        ]
        if not dangling:
            return PassResult(state, modified=False)
        graph_def = _copy(state.graph_def)
        for i in dangling:
            node = graph_def.node[i]
            values = kept(node)
            if values:
                node.attr[_CLASS].list.s[:] = values
            else:
                del node.attr[_CLASS]
        return PassResult(state.with_graph(graph_def), modified=True)


def _copy(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    copy = tf.compat.v1.GraphDef()
    copy.CopyFrom(graph_def)
    return copy
