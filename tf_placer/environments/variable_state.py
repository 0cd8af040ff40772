"""Decides whether sessions may share their state: only if it consists of variables."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

__all__ = ["find_assigned_variable", "variable_assignments"]

_VARIABLES = frozenset(
    {"AutoReloadVariable", "VarHandleOp", "Variable", "VariableV2", "_VarHandlesOp"}
)
_ASSIGNMENTS = frozenset({"Assign", "AssignVariableOp"})
# They keep what they are given, and have no handle.
_STAGES = frozenset({"MapStage", "OrderedMapStage", "Stage"})


def variable_assignments(
    graph: tf.Graph, initializers: Sequence[tf.Operation]
) -> list[tf.Operation] | None:
    """Finds the assignments behind the initializers of a graph whose only state is variables.

    Sessions of such a graph may share its variables, so that these are initialized once. An
    iterator or a queue, which one session would empty for another, may not be shared.

    Args:
        graph: the graph.
        initializers: what is run before the first step; operations that only group others count as
            what they group.

    Returns:
        The assignments, each once; None if there is any other state.
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
