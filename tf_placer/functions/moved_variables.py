"""Variables made again on other devices, as what they are for everybody who holds them."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

__all__ = ["move_variables", "renew_variables", "variables_behind"]


def move_variables(devices: Mapping[tf.experimental.Ref, str]) -> int:
    """Moves variables to devices; their values, names and identity stay.

    A variable is a Python object with a handle to memory on a device. Here the handle is exchanged
    for one to new memory with the same value, in the object and in all functions traced before.

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
    _make_again(moved)
    return len(moved)


def variables_behind(handles: Collection[tf.Tensor]) -> dict[int, tf.Variable]:
    """Finds the variables that handles belong to.

    Functions list those that they read. Others only their operations know, such as the slots of
    optimisers of Keras up to 2.10.

    Args:
        handles: tensors that functions have captured.

    Returns:
        The variables by the `id` of their handles; what is no variable is left out.
    """
    wanted = {id(handle) for handle in handles}
    found = _living(BaseResourceVariable) if wanted else []
    return {id(each._handle): each for each in found if id(each._handle) in wanted}


def renew_variables() -> None:
    """Makes all variables of this process again where they are.

    When a process connects to a cluster, its devices forget the names of what they hold. Variables
    from before can be read and updated by their handles, but what is assigned goes by the name, to
    memory that nobody reads.
    """
    variables = [each for each in _living(BaseResourceVariable) if _has_value(each)]
    _make_again([(each, each.device) for each in variables])


def _make_again(variables: Sequence[tuple[tf.Variable, str]]) -> None:
    made = []
    handles: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
    for variable, device in variables:
        old = variable.handle
        if id(old) in handles:
            continue
        with tf.device(device):
            new = tf.Variable(
                variable.read_value(),
                trainable=False,
                name=variable.name.partition(":")[0],
                shape=variable.shape,
            )
        made.append((variable, new))
        handles[id(old)] = (old, new.handle)
    for variable, new in made:
        variable._handle, new._handle = new._handle, variable._handle
        # Whoever deletes the memory of one has to delete that of its own handle.
        deleters = [getattr(each, "_handle_deleter", None) for each in (new, variable)]
        if any(deleter is not None for deleter in deleters):
            variable._handle_deleter, new._handle_deleter = deleters
    for variable, _ in variables:  # Another object may be the same variable.
        if id(variable.handle) in handles:
            variable._handle = handles[id(variable.handle)][1]
    if handles:
        _exchange_captures(handles)


def _exchange_captures(handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]) -> None:
    """Makes functions that were traced with the old handles use the new ones."""
    for function in _living(tf.types.experimental.ConcreteFunction):
        captured = getattr(function, "_captured_inputs", None)
        if captured and any(id(each) in handles for each in captured):
            function.set_external_captures(
                [handles[id(each)][1] if id(each) in handles else each for each in captured]
            )


def _has_value(variable: tf.Variable) -> bool:
    """Says whether a variable is one of this process, not of a graph, and was initialised."""
    handle = getattr(variable, "_handle", None)
    return isinstance(handle, EagerTensor) and bool(tf.raw_ops.VarIsInitializedOp(resource=handle))


def _living(kind: type) -> list[Any]:
    # Some objects answer when they are asked for their class.
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]
