"""Decides whether a session run or a function is a training step.

A training step updates trainable variables with values that depend on both variables and data, or
returns the gradients of variables, for the script to apply. This distinguishes it from
initializers, restored checkpoints, counters, copies of variables, and metrics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.functions import FunctionLibrary
from tf_placer.scripts.variable_updates import CALLS, has_training_update

__all__ = ["find_needed_operations", "is_training_function", "is_training_step"]

# Name scopes in which tf.GradientTape and tf.gradients create their operations.
_GRADIENTS = re.compile(r"(.*/)?gradient(s|_tape)(_\d+)?/")


def is_training_step(graph: tf.Graph, fetches: Iterable[str], feeds: Iterable[str]) -> bool:
    """Says whether a run of a session is a training step.

    Args:
        graph: the graph.
        fetches: names of the fetched operations and tensors.
        feeds: names of the fed tensors.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    trainable = {variable.op.name for variable in variables}
    fetched = [graph.as_graph_element(name) for name in fetches]
    ends = [each if isinstance(each, tf.Operation) else each.op for each in fetched]
    given = [each for each in fetched if isinstance(each, tf.Tensor)]
    fed = {_operation(name) for name in feeds}
    return has_training_update(
        graph, _sort_needed_operations(ends), trainable, fed
    ) or _returns_gradients(given, variables)


def find_needed_operations(graph: tf.Graph, fetches: Iterable[str]) -> set[str]:
    """Returns the names of all operations that fetches need, including the fetches themselves."""
    fetched = [graph.get_operation_by_name(_operation(name)) for name in fetches]
    return {operation.name for operation in _sort_needed_operations(fetched)}


def is_training_function(graph: Any) -> bool:
    """Says whether a traced function is a training step.

    Args:
        graph: the FuncGraph of the function.
    """
    variables = graph.trainable_variables
    handles = {id(variable.handle) for variable in variables}
    trainable = {inner.op.name for outer, inner in graph.captures if id(outer) in handles}
    # Variables can also be arguments of the function.
    captured = {id(inner) for _, inner in graph.captures}
    trainable |= {
        each.op.name
        for each in graph.inputs
        if each.dtype == tf.resource and id(each) not in captured
    }
    ends = [*graph.control_outputs, *(tensor.op for tensor in graph.outputs)]
    return has_training_update(
        graph, _sort_needed_operations(ends), trainable, set()
    ) or _returns_gradients(graph.outputs, variables)


def _returns_gradients(tensors: Iterable[tf.Tensor], variables: Sequence[Any]) -> bool:
    """Says whether a tensor is the gradient of a variable, or of all variables in one vector."""
    shapes = [variable.shape for variable in variables]
    in_one = tf.TensorShape([sum(shape.num_elements() or 0 for shape in shapes)])
    # The length of a vector may be unknown, for example after tf.dynamic_stitch.
    likely = [
        each
        for each in tensors
        if each.shape.rank and (each.shape in shapes or in_one.is_compatible_with(each.shape))
    ]
    if not (variables and likely):
        return False
    behind = list(_sort_needed_operations(each.op for each in likely))
    if any(_GRADIENTS.match(each.name) for each in behind):
        return True
    calls = [each.node_def for each in behind if each.type.endswith(CALLS)]
    if not calls:  # Avoids converting the graph, which takes time.
        return False
    library = FunctionLibrary(likely[0].graph.as_graph_def())
    called = {name for call in calls for name in library.find_all_callees(call)}
    return any(_GRADIENTS.match(node.name) for name in called for node in library.body(name))


def _sort_needed_operations(ends: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields the operations that `ends` need in topological order, ignoring the edges of loops."""
    seen: set[str] = set()
    waiting = [(operation, False) for operation in ends]
    while waiting:
        operation, is_ready = waiting.pop()
        if is_ready:
            yield operation
        elif operation.name not in seen:
            seen.add(operation.name)
            waiting.append((operation, True))
            waiting += [(tensor.op, False) for tensor in operation.inputs]
            waiting += [(before, False) for before in operation.control_inputs]


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
