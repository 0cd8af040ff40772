"""Variables made again on other devices, as what they are for everybody who holds them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable

from tf_placer.functions.living_objects import find_living

__all__ = ["move_variables", "renew_variables", "variables_behind"]


def move_variables(devices: Mapping[tf.experimental.Ref, str]) -> int:
    """Moves variables to devices; their values, names and identity stay.

    A variable is a Python object with a handle to memory on a device. Here the handle is exchanged
    for one to new memory with the same value, in all objects that stand for the variable and in all
    functions traced before. Data sets keep the old one: see `check_before_move`.

    Args:
        devices: full names of devices, by reference (`variable.ref()`) to the variable.

    Returns:
        How many were not where they should be.

    Raises:
        tf.errors.OpError: a value does not fit into the memory of its device; then all variables
            are where they were.
    """
    moved = [
        (reference.deref(), device)
        for reference, device in devices.items()
        if reference.deref().device != device
    ]
    if moved:
        _make_again(moved)
    return len(moved)


def variables_behind(handles: Collection[tf.Tensor]) -> dict[int, tf.Variable]:
    """Finds the variables that handles belong to.

    Functions list those that they read. Others only their operations know, such as the slots of
    optimizers of Keras up to 2.10.

    Args:
        handles: tensors that functions have captured.

    Returns:
        The variables by the `id` of their handles; what is no variable is left out.
    """
    wanted = {id(handle) for handle in handles}
    found = find_living(BaseResourceVariable) if wanted else []
    return {id(each._handle): each for each in found if id(each._handle) in wanted}


def renew_variables() -> None:
    """Makes all variables of this process again where they are.

    When a process connects to a cluster, its devices forget the names of what they hold. Variables
    from before can be read and updated by their handles, but what is assigned goes by the name, to
    memory that nobody reads.
    """
    variables = [each for each in find_living(BaseResourceVariable) if _has_value(each)]
    _make_again([(each, each.device) for each in variables])


def _make_again(variables: Sequence[tuple[tf.Variable, str]]) -> None:
    living = find_living(BaseResourceVariable, tf.types.experimental.ConcreteFunction, FuncGraph)
    # Several objects can be one variable: one with a policy of types, or what `assign` returns.
    objects: dict[int, dict[int, Any]] = {id(variable.handle): {} for variable, _ in variables}
    for each in (*living, *(variable for variable, _ in variables)):
        if isinstance(each, BaseResourceVariable):
            objects.get(id(getattr(each, "_handle", None)), {})[id(each)] = each
    made: dict[int, tuple[Any, Any]] = {}
    for variable, device in variables:
        key = id(variable.handle)
        if key not in made:
            made[key] = variable.handle, _copy_to(device, next(iter(objects[key].values())))
    handles = {key: (old, new.handle) for key, (old, new) in made.items()}
    for key, (old, new) in made.items():
        _exchange_handles(objects[key].values(), old, new)
    for each in living:
        if isinstance(each, FuncGraph):
            _exchange_graph_captures(each, handles)
        elif isinstance(each, tf.types.experimental.ConcreteFunction):
            _exchange_function_captures(each, handles)


def _copy_to(device: str, variable: Any) -> Any:
    """Makes another variable with the same value on a device."""
    # `tf.Variable` would ask the scope of whoever calls, such as one of a strategy.
    with tf.device(device):
        return ResourceVariable(
            variable.read_value(),
            trainable=False,
            name=variable.name.partition(":")[0],
            shape=variable.shape,
        )


def _exchange_handles(objects: Iterable[Any], old: tf.Tensor, new: Any) -> None:
    """Gives the objects that are one variable the memory of a new one, which gets theirs."""
    for each in objects:
        each._handle = new.handle
        # Whoever deletes the memory of one has to delete that of its own handle.
        if (deleter := getattr(each, "_handle_deleter", None)) is not None:
            each._handle_deleter, new._handle_deleter = new._handle_deleter, deleter
    new._handle = old


def _exchange_function_captures(
    function: Any, handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]
) -> None:
    captured = getattr(function, "_captured_inputs", None)
    if captured and any(id(each) in handles for each in captured):
        function.set_external_captures(
            [handles[id(each)][1] if id(each) in handles else each for each in captured]
        )


def _exchange_graph_captures(
    graph: FuncGraph, handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]
) -> None:
    """Exchanges what a graph says it captures, by which functions are saved and made of it."""
    captures = graph.captures
    if any(id(outer) in handles for outer, _ in captures):
        outer = [handles[id(each)][1] if id(each) in handles else each for each, _ in captures]
        graph._function_captures.reset_captures(outer, [inner for _, inner in captures])


def _has_value(variable: tf.Variable) -> bool:
    """Says whether a variable is one of this process, not of a graph, and was initialized."""
    handle = getattr(variable, "_handle", None)
    return isinstance(handle, EagerTensor) and bool(tf.raw_ops.VarIsInitializedOp(resource=handle))
