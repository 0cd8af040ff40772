"""Assignments of given values to the variables of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

__all__ = ["Assignments", "add_assignments"]

#: Assignments that run together, and the values that they are fed.
Assignments = tuple[list[tf.Operation], dict[tf.Tensor, np.ndarray]]

# Messages to a server are limited to 2 GiB; small ones fit into memory beside the variables.
_MAX_BYTES_AT_ONCE = 2**24


def add_assignments(graph: tf.Graph, values: Mapping[str, np.ndarray]) -> list[Assignments]:
    """Adds operations to a graph that assign values to its variables.

    The operations request no device, so that TensorFlow puts them on those of the variables.

    Args:
        graph: gets a placeholder and an assignment for each value.
        values: values by name of the variable's operation.

    Returns:
        Sets of assignments, to run one set after the other.

    Raises:
        KeyError, ValueError: there is no such variable, or a value does not fit it.
    """
    sets: list[Assignments] = []
    at_once_bytes = 0
    for name, value in values.items():
        with graph.as_default():
            variable = graph.get_operation_by_name(name)
            dtype = tf.dtypes.as_dtype(variable.get_attr("dtype"))
            fed = tf.compat.v1.placeholder(dtype, value.shape, f"{name}/tf_placer_restored")
            if variable.type == "VarHandleOp":
                assignment = tf.raw_ops.AssignVariableOp(resource=variable.outputs[0], value=fed)
            else:
                assignment = tf.raw_ops.Assign(ref=variable.outputs[0], value=fed).op
        if not sets or at_once_bytes + value.nbytes > _MAX_BYTES_AT_ONCE:
            sets.append(([], {}))
            at_once_bytes = 0
        at_once_bytes += value.nbytes
        operations, feeds = sets[-1]
        operations.append(assignment)
        feeds[fed] = value
    return sets
