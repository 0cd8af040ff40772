"""Detects calls of Python functions in a step, which only run in the process that made them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from tensorflow.python.ops import script_ops

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from tf_placer.inputs.step import Step
from tf_placer.inputs.workload import Workload
from tf_placer.machines.machine import Machine

__all__ = ["check_no_python_functions", "check_python_functions_are_here", "find_python_call"]

_CALLS = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_REASON = (
    "calls a Python function (py_func, numpy_function, py_function or Dataset.from_generator), "
    "which exists only in the process that made the graph"
)
_REMEDY = "feed what the function makes, or make it with operations of TensorFlow"


def check_no_python_functions(graph: OpGraph, step: Step) -> None:
    """Refuses a step that calls Python functions, also in functions of a data set.

    Args:
        graph: the graph, with the operations of the step marked.
        step: the step.

    Raises:
        GraphError: the step calls a Python function; the message names the operation.
    """
    for name, _ in _find_python_calls(graph, step):
        raise GraphError(f"{name!r} {_REASON}, and steps run in processes of their own: {_REMEDY}")


def check_python_functions_are_here(workload: Workload, machine: Machine) -> str | None:
    """Checks that steps run in this process if they call Python functions.

    Args:
        workload: the graph and its step.
        machine: the machine that is to run the steps.

    Returns:
        The name of an operation that calls a Python function; None if none does.

    Raises:
        GraphError: an operation calls a Python function, and steps cannot run in this process; the
            message names the operation.
    """
    calls = list(_find_python_calls(workload.op_graph, workload.step))
    if not calls:
        return None
    name = calls[0][0]
    if not machine.backend.in_this_process:
        raise GraphError(
            f"{name!r} {_REASON}, and steps on {machine.spec!r} run in other processes: pass "
            f"machine='attached', {_REMEDY}"
        )
    if workload.live is None:
        raise GraphError(
            f"{name!r} {_REASON}; a file or a GraphDef does not have it: pass the tf.Graph "
            f"itself to tf_placer.optimize, {_REMEDY}"
        )
    for caller, call in calls:
        token = call.attr["token"].s.decode()
        if script_ops._py_funcs.get(token) is None:
            raise GraphError(
                f"{caller!r} {_REASON}; {token!r} is not registered in this one: build the "
                f"graph here, {_REMEDY}"
            )
    return name


def find_python_call(graph_def: Any) -> str | None:
    """Finds an operation that calls Python, in a graph or one of its functions.

    Args:
        graph_def: a GraphDef.

    Returns:
        The name of the operation; None if there is none.
    """
    bodies = (graph_def.node, *(each.node_def for each in graph_def.library.function))
    return next((node.name for nodes in bodies for node in nodes if node.op in _CALLS), None)


def _find_python_calls(graph: OpGraph, step: Step) -> Iterator[tuple[str, Any]]:
    """Yields operations of a graph that lead to a Python call, each with the calling node."""
    library = {f.signature.name: f for f in graph.graph_def.library.function}
    nodes = (graph.graph_def.node, *(function.node_def for function in library.values()))
    if not any(node.op in _CALLS for each in nodes for node in each):
        return
    needed = graph.needed
    beside = [*step.initializers, *(name for each in step.queue_runners for name in each.enqueue)]
    if beside:
        needed = needed | graph.restrict(beside, list(step.initializer_feeds)).needed
    seen: set[str] = set()
    for i in np.flatnonzero(needed).tolist():
        for call in _find_calls(graph.graph_def.node[i : i + 1], library, seen):
            yield graph.names[i], call


def _find_calls(nodes: Sequence[Any], library: dict[str, Any], seen: set[str]) -> Iterator[Any]:
    """Yields nodes that call Python, except those in functions that were seen."""
    for node in nodes:
        if node.op in _CALLS:
            yield node
        for name in _list_functions(node):
            if name in library and name not in seen:
                seen.add(name)
                yield from _find_calls(library[name].node_def, library, seen)


def _list_functions(node: Any) -> Iterator[str]:
    yield node.op
    for value in node.attr.values():
        if value.HasField("func"):
            yield value.func.name
        yield from (function.name for function in value.list.func)
