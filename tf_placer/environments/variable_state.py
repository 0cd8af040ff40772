"""Decisions whether sessions may share state: only if it consists of variables."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["find_assigned_variable", "find_variable_assignments"]

_VARIABLES = frozenset(
    {"AutoReloadVariable", "VarHandleOp", "Variable", "VariableV2", "_VarHandlesOp"}
)
_ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
# Stages keep their inputs as state without having a handle.
_STAGES = frozenset({"MapStage", "OrderedMapStage", "Stage"})


def find_variable_assignments(
    graph: tf.Graph, initializers: Sequence[tf.Operation]
) -> list[tf.Operation] | None:
    """Finds the assignments behind the initializers of a graph whose only state is variables.

    Sessions of such a graph may share its variables, so that these are initialized once. Iterators
    and queues may not be shared, because one session would take the elements of another.

    Args:
        graph: the graph.
        initializers: operations that run before the first step. An operation that only groups
            others stands for these.

    Returns:
        The assignments without duplicates; None if the graph has other state.
    """
    assignments: dict[tf.Operation, None] = {}
    waiting = list(reversed(initializers))
    grouped = set()
    while waiting:
        operation = waiting.pop()
        if operation.type == "NoOp" and not operation.inputs:
            if operation not in grouped:
                grouped.add(operation)
                waiting += reversed(operation.control_inputs)
        elif find_assigned_variable(operation) is None:
            return None
        else:
            assignments[operation] = None
    holds_other_state = any(
        operation.type in _STAGES
        or (
            operation.type not in _VARIABLES
            and any(map(_is_handle, operation.outputs))
            and not any(map(_is_handle, operation.inputs))
        )
        for operation in graph.get_operations()
    )
    return None if holds_other_state else list(assignments)


def find_assigned_variable(operation: tf.Operation) -> tf.Operation | None:
    """Finds the variable that an operation assigns to; None if it does not assign to one."""
    if operation.type not in _ASSIGNMENTS or operation.inputs[0].op.type not in _VARIABLES:
        return None
    return operation.inputs[0].op


def _is_handle(tensor: tf.Tensor) -> bool:
    return tensor.dtype == tf.resource or bool(tensor.dtype._is_ref_dtype)
