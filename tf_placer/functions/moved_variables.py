"""Recreates variables, on the same or other devices, for all objects that refer to them."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.resource_variable_ops import (
    BaseResourceVariable,
    ResourceVariable,
    UninitializedVariable,
)

from tf_placer.functions.living_objects import find_living

__all__ = ["find_handle_variables", "list_moved", "move_variables", "recreate_variables"]

# By id, because variables cannot be hashed.
_moved: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


def move_variables(devices: Mapping[tf.experimental.Ref, str]) -> int:
    """Moves variables to devices; their values, names and identity stay the same.

    A variable is a Python object with a handle to memory on a device. The handle is replaced by a
    handle to new memory with the same value, in all Python objects of the variable and in all
    functions traced before. Data sets keep the old handle: see `check_before_move`.

    Args:
        devices: full names of devices, by reference (`variable.ref()`) to the variable.

    Returns:
        The number of variables that were moved.

    Raises:
        tf.errors.OpError: a value does not fit into the memory of its device; no variable is moved
            then.
    """
    moved = [
        (reference.deref(), device)
        for reference, device in devices.items()
        if reference.deref().device != device
    ]
    if moved:
        _recreate(moved)
        _moved.update({id(variable): variable for variable, _ in moved})
    return len(moved)


def list_moved(variables: Iterable[tf.Variable]) -> list[tf.Variable]:
    """Lists the variables that `move_variables` has moved."""
    return [variable for variable in variables if _moved.get(id(variable)) is variable]


def find_handle_variables(handles: Collection[tf.Tensor]) -> dict[int, tf.Variable]:
    """Finds the variables that handles belong to.

    A function's own list of variables is not complete: it lacks the slot variables of optimizers of
    Keras up to 2.10.

    Args:
        handles: tensors that functions have captured.

    Returns:
        The variables by the `id` of their handles, without the handles of other resources.
    """
    wanted = {id(handle) for handle in handles}
    found = find_living(BaseResourceVariable) if wanted else []
    return {id(each._handle): each for each in found if id(each._handle) in wanted}


def recreate_variables() -> None:
    """Recreates all variables of this process on their devices.

    When a process connects to a cluster, its devices forget the names of their resources. Older
    variables can still be read and updated through their handles, but assignments look up the name
    and would write to memory that nothing reads.
    """
    variables = [each for each in find_living(BaseResourceVariable) if _has_value(each)]
    _recreate([(each, each.device) for each in variables])


def _recreate(variables: Sequence[tuple[tf.Variable, str]]) -> None:
    living = find_living(BaseResourceVariable, tf.types.experimental.ConcreteFunction, FuncGraph)
    # Several objects can share one handle: a mixed-precision wrapper, or the result of `assign`.
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
        _swap_handles(objects[key].values(), old, new)
    for each in living:
        if isinstance(each, FuncGraph):
            _replace_graph_captures(each, handles)
        elif isinstance(each, tf.types.experimental.ConcreteFunction):
            _replace_function_captures(each, handles)


def _copy_to(device: str, variable: Any) -> Any:
    """Creates another variable with the same value, or without one, on a device."""
    with tf.device(device):
        if not _has_value(variable):
            return UninitializedVariable(
                trainable=False,
                name=variable.name.partition(":")[0],
                shape=variable.shape,
                dtype=variable.dtype,
            )
        # `tf.Variable` would obey the caller's variable creator scopes, such as a strategy's.
        return ResourceVariable(
            variable.read_value(),
            trainable=False,
            name=variable.name.partition(":")[0],
            shape=variable.shape,
        )


def _swap_handles(objects: Iterable[Any], old: tf.Tensor, new: Any) -> None:
    """Swaps the memory of a variable, in all its Python objects, with that of a new variable."""
    for each in objects:
        each._handle = new.handle
        # A deleter has to stay with the handle whose memory it frees.
        if (deleter := getattr(each, "_handle_deleter", None)) is not None:
            each._handle_deleter, new._handle_deleter = new._handle_deleter, deleter
    new._handle = old


def _replace_function_captures(
    function: Any, handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]
) -> None:
    captured = getattr(function, "_captured_inputs", None)
    if captured and any(id(each) in handles for each in captured):
        function.set_external_captures(
            [handles[id(each)][1] if id(each) in handles else each for each in captured]
        )


def _replace_graph_captures(
    graph: FuncGraph, handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]
) -> None:
    """Exchanges the captures of a graph, which are used to save it and to make functions of it."""
    captures = graph.captures
    if any(id(outer) in handles for outer, _ in captures):
        outer = [handles[id(each)][1] if id(each) in handles else each for each, _ in captures]
        graph._function_captures.reset_captures(outer, [inner for _, inner in captures])


def _has_value(variable: tf.Variable) -> bool:
    """Says whether a variable is an initialized eager variable, not one of a graph."""
    handle = getattr(variable, "_handle", None)
    return isinstance(handle, EagerTensor) and bool(tf.raw_ops.VarIsInitializedOp(resource=handle))
