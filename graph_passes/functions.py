"""The functions of a graph, and which of them an operation runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry

__all__ = ["FunctionLibrary", "called_functions"]


class FunctionLibrary:
    """Follows calls: a function's name used as an operation type, and functions as attributes."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef) -> None:
        """Takes the library of a graph."""
        self._bodies = {f.signature.name: f.node_def for f in graph_def.library.function}
        self._calls: dict[str, tuple[str, ...]] = {}
        self._runs: dict[tuple[str, ...], frozenset[str]] = {}

    def __contains__(self, name: str) -> bool:
        """Whether there is a function of this name."""
        return name in self._bodies

    def body(self, name: str) -> Iterable[tf.compat.v1.NodeDef]:
        """Lists the operations of a function; none if there is no such function."""
        return self._bodies.get(name, ())

    def run_by(self, node: tf.compat.v1.NodeDef) -> frozenset[str]:
        """Names all functions that an operation runs, however indirectly.

        Args:
            node: an operation of the graph or of a function.

        Returns:
            Names, also of functions that the library lacks.
        """
        direct = self._called_by(node)
        if direct not in self._runs:
            found = set(direct)
            pending = list(direct)
            while pending:
                name = pending.pop()
                if name not in self._calls:
                    calls = [self._called_by(inner) for inner in self.body(name)]
                    self._calls[name] = tuple({n for names in calls for n in names})
                for called in self._calls[name]:
                    if called not in found:
                        found.add(called)
                        pending.append(called)
            self._runs[direct] = frozenset(found)
        return self._runs[direct]

    def _called_by(self, node: tf.compat.v1.NodeDef) -> tuple[str, ...]:
        if node.op in self._bodies:
            return (node.op,)
        if not _takes_functions(node.op):
            return ()
        names = []
        for value in node.attr.values():
            if value.HasField("func"):
                names.append(value.func.name)
            elif value.HasField("list"):
                names += [function.name for function in value.list.func]
        return tuple(names)


def called_functions(graph_def: tf.compat.v1.GraphDef) -> function_pb2.FunctionDefLibrary:
    """Copies the functions that the operations of a graph run, and the gradients of these."""
    library = FunctionLibrary(graph_def)
    gradient_of = {each.function_name: each.gradient_func for each in graph_def.library.gradient}
    called = {name for node in graph_def.node for name in library.run_by(node)}
    waiting = [gradient_of[name] for name in called if name in gradient_of]
    while waiting:
        name = waiting.pop()
        inner = {each for node in library.body(name) for each in library.run_by(node)}
        new = {name, *inner} - called
        called |= new
        waiting += [gradient_of[each] for each in new if each in gradient_of]
    return function_pb2.FunctionDefLibrary(
        function=[each for each in graph_def.library.function if each.signature.name in called],
        gradient=[each for each in graph_def.library.gradient if each.function_name in called],
    )


@functools.cache
def _takes_functions(op_type: str) -> bool:
    op_def = op_def_registry.get(op_type)
    return op_def is not None and any("func" in attr.type for attr in op_def.attr)
