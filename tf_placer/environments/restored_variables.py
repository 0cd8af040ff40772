"""Assignments of given values to the variables of a graph."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

__all__ = ["Assignments", "assignments_of"]

#: Operations that assign, and what they are fed: what runs at once.
Assignments = tuple[list[tf.Operation], dict[tf.Tensor, np.ndarray]]

# A message to a server may have 2 GiB at most.
_MAX_BYTES_AT_ONCE = 2**28


def assignments_of(graph: tf.Graph, values: Mapping[str, np.ndarray]) -> list[Assignments]:
    """Adds operations to a graph that assign values to its variables.

    They have no device of their own, so that TensorFlow puts them where their variables are.

    Args:
        graph: gets a placeholder and an assignment for each value.
        values: by name of the variable's operation.

    Returns:
        Sets of assignments, to run one after the other.

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
