"""Copies a ConcreteFunction and sets the devices of its operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import ops
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.ops.control_flow_util_v2 import get_func_graph
from tensorflow.python.ops.handle_data_util import copy_handle_data

from graph_passes.host_copies import HostCopy
from tf_placer.functions.host_copies import insert_host_copies

__all__ = ["place_concrete_function"]


def place_concrete_function(
    function: Any, device_of: Callable[[str], str], copies: Iterable[HostCopy] = ()
) -> Any:
    """Copies a ConcreteFunction and puts its operations on devices.

    Args:
        function: the ConcreteFunction, which is neither traced again nor changed.
        device_of: returns the device of an operation by its name; "" sets none.
        copies: the tensors that wait on the CPU.

    Returns:
        Another ConcreteFunction with the same arguments, results and variables. It gets the current
        captures of the function, because those of its graph may be older than a move of variables.
    """
    graph = _copy_graph(function.graph)
    for operation in graph.get_operations():
        device = device_of(operation.name)
        if device:
            operation._set_device(device)
    insert_host_copies(graph, copies)
    placed = ConcreteFunction.from_func_graph(graph, function.function_type, {})
    placed.set_external_captures(list(function._captured_inputs))
    # Calls without a function type bind their arguments by these.
    placed._arg_keywords = function._arg_keywords
    placed._num_positional_args = function._num_positional_args
    return placed


def _copy_graph(graph: FuncGraph) -> FuncGraph:
    """Copies the graph of a function: operations, arguments, captures, results and gradients."""
    copy = FuncGraph(graph.name)
    for function in graph._functions.values():
        copy._add_function_recursive(function)
    with copy.as_default():
        graph_def = graph.as_graph_def()
        graph_def.library.Clear()
        tf.import_graph_def(graph_def, name="")

    def twin(tensor: Any) -> Any:
        # A result can be None, or a TensorSpec in a function that was loaded.
        return copy.get_tensor_by_name(tensor.name) if isinstance(tensor, tf.Tensor) else tensor

    for operation in graph.get_operations():
        other = copy.get_operation_by_name(operation.name)
        other._set_device(operation.device)
        other._gradient_function = operation._gradient_function
        for tensor, its_twin in zip(operation.outputs, other.outputs, strict=True):
            its_twin.set_shape(tensor.shape)
            copy_handle_data(tensor, its_twin)
    for outer, inner in graph.captures:
        copy.add_capture(outer, twin(inner))
    copy.inputs = [twin(tensor) for tensor in graph.inputs]
    copy.outputs = [twin(tensor) for tensor in graph.outputs]
    copy.control_outputs = [copy.get_operation_by_name(each.name) for each in graph.control_outputs]
    copy.structured_input_signature = graph.structured_input_signature
    copy.structured_outputs = tf.nest.map_structure(
        twin, graph.structured_outputs, expand_composites=True
    )
    copy.variables = graph.variables
    _rename_bodies(copy)
    if not graph.saveable:
        copy.mark_as_unsaveable(list(graph.saving_errors))
    if hasattr(graph, "collective_manager_ids_used"):
        copy.collective_manager_ids_used = graph.collective_manager_ids_used
    return copy


def _rename_bodies(graph: FuncGraph) -> None:
    """Gives the bodies of loops and branches in a graph unique names, at any nesting depth.

    To compute a gradient, TensorFlow rewrites a body and derives the new name from the old one. Two
    graphs that share a body would claim the same name.
    """
    for operation in graph.get_operations():
        for place, name, shapes in _list_bodies(operation):
            body = get_func_graph(operation, shapes, name)
            body.name = f"{name}_{ops.uid()}"
            setattr(operation, place, body)
            _rename_bodies(body)


def _list_bodies(operation: tf.Operation) -> Iterator[tuple[str, str, list[tf.TensorShape]]]:
    """Yields, for each body of an operation, TensorFlow's attribute, the name and input shapes."""
    kind = operation.type.removeprefix("Stateless")
    if kind == "While":
        shapes = [tf.TensorShape(shape) for shape in operation.get_attr("output_shapes")]
        for attribute in ("cond", "body"):
            yield f"_{attribute}_graph", operation.get_attr(attribute).name, shapes
    elif kind in ("If", "Case"):
        shapes = [tensor.shape for tensor in operation.inputs[1:]]
        if kind == "If":
            yield "_true_graph", operation.get_attr("then_branch").name, shapes
            yield "_false_graph", operation.get_attr("else_branch").name, shapes
        else:
            for index, branch in enumerate(operation.get_attr("branches")):
                yield f"_branch_graph_{index}", branch.name, shapes
