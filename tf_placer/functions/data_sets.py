"""Checks for data sets that hold handles of variables, which become stale when variables move."""

from __future__ import annotations

import gc
from collections.abc import Iterable

import tensorflow as tf
from absl import logging
from tensorflow.python.data.ops.structured_function import StructuredFunctionWrapper
from tensorflow.python.framework.auto_control_deps_utils import (
    get_read_only_resource_input_indices_graph,
)
from tensorflow.python.framework.ops import EagerTensor

from graph_passes.errors import GraphError
from tf_placer.functions.living_objects import find_living
from tf_placer.functions.moved_variables import find_handle_variables
from tf_placer.machines.machine import MachineError

__all__ = ["check_before_connection", "check_before_move"]


def check_before_move(variables: Iterable[tf.Variable]) -> None:
    """Checks that no data set uses variables that are about to move.

    TensorFlow copies the handles that the functions of a data set capture into the data set, and
    into iterators over it, where nothing can replace them.

    Raises:
        GraphError: a data set uses one of the variables.
    """
    handles = {id(variable.handle) for variable in variables}
    if not handles.isdisjoint(_find_captured()):
        gc.collect()  # Frees unreachable data sets, which do not count.
        captured = _find_captured()
        used = [captured[key][0] for key in handles if key in captured]
        for variable in find_handle_variables(used).values():
            raise GraphError(
                f"a data set uses the variable {variable.name!r} of the step, and would go on with "
                "the memory that the variable leaves: make the data set after the step is placed, "
                "and delete those from before"
            )


def check_before_connection() -> None:
    """Checks that data sets still work after this process has connected to a cluster.

    Connecting recreates all variables. A data set that reads a variable keeps reading the old
    value; a warning says so.

    Raises:
        MachineError: a data set assigns to a variable; the assigned values would be lost.
    """
    if not _find_captured():
        return
    gc.collect()
    captured = _find_captured()
    for key, variable in find_handle_variables([handle for handle, _ in captured.values()]).items():
        _, is_assigned = captured[key]
        if is_assigned:
            raise MachineError(
                f"a data set assigns to the variable {variable.name!r}, which would be lost when "
                "this process connects to a cluster: call tf_placer.connect before the data set is "
                "made"
            )
        logging.warning(
            "a data set reads the variable %r, and does not see what is assigned to it from now "
            "on: call tf_placer.connect before the data set is made",
            variable.name,
        )


def _find_captured() -> dict[int, tuple[tf.Tensor, bool]]:
    """Finds the handles of variables that existing data sets have captured.

    Returns:
        The handle and whether a data set assigns to its variable, by the `id` of the handle.
    """
    found: dict[int, tuple[tf.Tensor, bool]] = {}
    for wrapper in find_living(StructuredFunctionWrapper):
        function = wrapper.function
        if not isinstance(function, tf.types.experimental.ConcreteFunction):
            continue  # A graph of TensorFlow 1 has its own variables.
        inputs, captured = function.graph.inputs, function.captured_inputs
        only_read = set(get_read_only_resource_input_indices_graph(function.graph))
        for index, handle in enumerate(captured, len(inputs) - len(captured)):
            if isinstance(handle, EagerTensor) and handle.dtype == tf.resource:
                _, is_assigned = found.get(id(handle), (handle, False))
                found[id(handle)] = handle, is_assigned or index not in only_read
    return found
