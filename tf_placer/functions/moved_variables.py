"""Variables made again on other devices, as what they are for everybody who holds them."""

from __future__ import annotations

import gc
from collections.abc import Mapping

import tensorflow as tf

__all__ = ["move_variables"]


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
    moved = {}
    for reference, device in devices.items():
        variable = reference.deref()
        if variable.device != device:
            with tf.device(device):
                moved[reference] = tf.Variable(
                    variable.read_value(), trainable=False, name=variable.name.partition(":")[0]
                )
    handles = {}
    for reference, new in moved.items():
        variable = reference.deref()
        handles[id(variable.handle)] = (variable.handle, new.handle)
        variable._handle, new._handle = new._handle, variable._handle
        # Whoever deletes the memory of one has to delete that of its own handle.
        deleters = [getattr(each, "_handle_deleter", None) for each in (new, variable)]
        if any(deleter is not None for deleter in deleters):
            variable._handle_deleter, new._handle_deleter = deleters
    if handles:
        _exchange_captures(handles)
    return len(moved)


def _exchange_captures(handles: Mapping[int, tuple[tf.Tensor, tf.Tensor]]) -> None:
    """Makes functions that were traced with the old handles use the new ones."""
    for function in gc.get_objects():
        if not isinstance(function, tf.types.experimental.ConcreteFunction):
            continue
        captured = getattr(function, "_captured_inputs", None)
        if captured and any(id(each) in handles for each in captured):
            function.set_external_captures(
                [handles[id(each)][1] if id(each) in handles else each for each in captured]
            )
