"""Whether a step calls functions of Python, which no other process has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tf_placer.inputs.step import Step

__all__ = ["check_no_python_functions"]

_CALLS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})


def check_no_python_functions(graph: OpGraph, step: Step) -> None:
    """Refuses a step that calls functions of Python, be it in a function of a data set.

    Args:
        graph: the graph, with what the step needs marked.
        step: the step.

    Raises:
        GraphError: it calls one; the message names the operation.
    """
    library = {f.signature.name: f for f in graph.graph_def.library.function}
    nodes = (graph.graph_def.node, *(function.node_def for function in library.values()))
    if not any(node.op in _CALLS for each in nodes for node in each):
        return
    needed = graph.needed
    beside = [*step.initializers, *(name for each in step.queue_runners for name in each.enqueue)]
    if beside:
        needed = needed | graph.restricted(beside, list(step.initializer_feeds)).needed
    seen: set[str] = set()
    for i in np.flatnonzero(needed).tolist():
        if _calls(graph.graph_def.node[i : i + 1], library, seen):
            raise GraphError(
                f"{graph.names[i]!r} calls a Python function (py_func, numpy_function, py_function "
                "or Dataset.from_generator), which exists only in the process that made the "
                "graph, and steps run in processes of their own: feed what the function makes, or "
                "make it with operations of TensorFlow"
            )


def _calls(nodes: Sequence[Any], library: dict[str, Any], seen: set[str]) -> bool:
    """Says whether nodes call Python, except through functions that were seen not to."""
    for node in nodes:
        if node.op in _CALLS:
            return True
        for name in _functions(node):
            if name in library and name not in seen:
                seen.add(name)
                if _calls(library[name].node_def, library, seen):
                    return True
    return False


def _functions(node: Any) -> Iterator[str]:
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)
