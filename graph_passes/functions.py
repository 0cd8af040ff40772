"""The functions of a graph and their calls."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import networkx as nx
import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.errors import GraphError
from graph_passes.util.messages import quote

__all__ = ["FunctionLibrary", "check_calls_end", "copy_called_functions"]

_PARTITIONED_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
_CONDITIONALS = frozenset(["If", "StatelessIf", "Case", "StatelessCase", "While", "StatelessWhile"])
_LOWERED = "_lower_using_switch_merge"


class FunctionLibrary:
    """The functions of a graph; calls are function names as operation types or attributes."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef) -> None:
        """Indexes the function library of a graph."""
        self._bodies = {f.signature.name: f.node_def for f in graph_def.library.function}
        self._calls: dict[str, tuple[str, ...]] = {}
        self._runs: dict[tuple[str, ...], frozenset[str]] = {}

    def __contains__(self, name: str) -> bool:
        """Returns whether the library has a function."""
        return name in self._bodies

    def body(self, name: str) -> Iterable[tf.compat.v1.NodeDef]:
        """Lists the operations of a function; none if there is no such function."""
        return self._bodies.get(name, ())

    def find_all_callees(self, node: tf.compat.v1.NodeDef) -> frozenset[str]:
        """Lists the functions that an operation runs, directly or indirectly.

        Args:
            node: an operation of the graph or of a function.

        Returns:
            Their names, including functions that are not in the library.
        """
        direct = self.find_callees(node)
        if direct not in self._runs:
            found = set(direct)
            pending = list(direct)
            while pending:
                name = pending.pop()
                for called in self._find_calls(name):
                    if called not in found:
                        found.add(called)
                        pending.append(called)
            self._runs[direct] = frozenset(found)
        return self._runs[direct]

    def find_recursive(self) -> list[frozenset[str]]:
        """Finds the sets of mutually recursive functions."""
        calls = nx.DiGraph(
            (name, called) for name in self._bodies for called in self._find_calls(name)
        )
        return [
            frozenset(component)
            for component in nx.strongly_connected_components(calls)
            if len(component) > 1 or calls.has_edge(*2 * tuple(component))
        ]

    def _find_calls(self, name: str) -> tuple[str, ...]:
        """Lists the functions that the operations of a function call directly."""
        if name not in self._calls:
            calls = [self.find_callees(inner) for inner in self.body(name)]
            self._calls[name] = tuple({n for names in calls for n in names})
        return self._calls[name]

    def find_callees(self, node: tf.compat.v1.NodeDef) -> tuple[str, ...]:
        """Lists the functions that an operation calls directly."""
        if node.op in self._bodies:
            return (node.op,)
        if not _has_function_attribute(node.op):
            return ()
        names = []
        for value in node.attr.values():
            if value.HasField("func"):
                names.append(value.func.name)
            elif value.HasField("list"):
                names += [function.name for function in value.list.func]
        return tuple(names)


def copy_called_functions(graph_def: tf.compat.v1.GraphDef) -> function_pb2.FunctionDefLibrary:
    """Copies the functions that a graph runs, and their gradient functions."""
    library = FunctionLibrary(graph_def)
    gradient_of = {each.function_name: each.gradient_func for each in graph_def.library.gradient}
    called = {name for node in graph_def.node for name in library.find_all_callees(node)}
    waiting = [gradient_of[name] for name in called if name in gradient_of]
    while waiting:
        name = waiting.pop()
        inner = {each for node in library.body(name) for each in library.find_all_callees(node)}
        new = {name, *inner} - called
        called |= new
        waiting += [gradient_of[each] for each in new if each in gradient_of]
    return function_pb2.FunctionDefLibrary(
        function=[each for each in graph_def.library.function if each.signature.name in called],
        gradient=[each for each in graph_def.library.gradient if each.function_name in called],
    )


def check_calls_end(graph_def: tf.compat.v1.GraphDef) -> None:
    """Checks that no function of the graph makes TensorFlow inline it without end.

    Recursion is allowed in a conditional that runs as one operation. TensorFlow inlines any other
    recursive function into itself until the process dies.

    Raises:
        GraphError: there is endless recursion; the message names a function.
    """
    library = FunctionLibrary(graph_def)
    components = library.find_recursive() if graph_def.library.function else []
    if not components:
        return
    run = {name for node in graph_def.node for name in library.find_all_callees(node)}
    for component in components:
        if component <= run and not _may_end(library, component):
            first, *others = sorted(component)
            through = f", through {', '.join(map(quote, others[:3]))}" if others else ""
            raise GraphError(
                f"the function {quote(first)} calls itself{through}, which TensorFlow would never "
                "finish: write a loop with tf.while_loop instead"
            )


def _may_end(library: FunctionLibrary, component: frozenset[str]) -> bool:
    """Returns whether TensorFlow can run a set of mutually recursive functions."""
    always = nx.DiGraph()
    for name in component:
        for node in library.body(name):
            again = component.intersection(library.find_callees(node))
            if again and (
                node.op in _PARTITIONED_CALLS or (_LOWERED in node.attr and node.attr[_LOWERED].b)
            ):
                return False
            if node.op not in _CONDITIONALS:
                always.add_edges_from((name, called) for called in again)
    return nx.is_directed_acyclic_graph(always)


@functools.cache
def _has_function_attribute(op_type: str) -> bool:
    op_def = op_def_registry.get(op_type)
    return op_def is not None and any("func" in attr.type for attr in op_def.attr)
