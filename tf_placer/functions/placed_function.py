"""A function with devices: traced again, each operation on the device of its name."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.eager.polymorphic_function import concrete_function as concrete_functions
from tensorflow.python.eager.polymorphic_function.autograph_util import py_func_from_autograph
from tensorflow.python.eager.polymorphic_function.function_type_utils import (
    canonicalize_function_inputs,
)
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor

__all__ = ["arrays_as_tensors", "placed_concrete_function", "placed_function"]


def arrays_as_tensors(arguments: Any) -> Any:
    """Makes arrays in a structure tensors, as a function does that is called with them."""
    return tf.nest.map_structure(
        lambda leaf: tf.constant(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf,
        arguments,
    )


def placed_function(
    function: Callable[..., Any],
    device_of: Callable[[str], str],
    *,
    inline: bool,
    autograph: bool,
    input_signature: Any = None,
) -> Any:
    """Makes a tf.function whose operations are on devices.

    Names of operations are the same in each trace, so that a placement found for one trace is one
    of the next. Gradients that the function computes are operations of it, and placed like others.

    Args:
        function: a Python function.
        device_of: the device of an operation, by its name; "" leaves that to others.
        inline: whether functions that are called become part of it, so that their operations have
            names and devices of their own.
        autograph: as of tf.function.
        input_signature: as of tf.function.

    Returns:
        The tf.function.
    """

    @functools.wraps(function)
    def placed(*args: Any, **kwargs: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()

        def device(operation: tf.Operation) -> str:
            # Bodies of loops and branches are on the device of the operation that runs them.
            of_name = device_of(operation.name) if operation.graph is graph else ""
            return of_name or operation.device

        with contextlib.ExitStack() as stack:
            stack.enter_context(graph.device(device))
            stack.enter_context(_named_captures())
            stack.enter_context(_reductions_of_nothing())
            if inline:
                stack.enter_context(_inlined_calls())
            return function(*args, **kwargs)

    return tf.function(placed, autograph=autograph, input_signature=input_signature)


def placed_concrete_function(function: Any, device_of: Callable[[str], str]) -> Any:
    """Makes a ConcreteFunction whose operations are on devices.

    Args:
        function: the ConcreteFunction, which is not traced again.
        device_of: the device of an operation, by its name; "" leaves that to others.

    Returns:
        Another ConcreteFunction, with the same captures, arguments and results.
    """
    for operation in function.graph.get_operations():
        # What TensorFlow has registered for the function itself does not change by that.
        device = device_of(operation.name)
        if device:
            operation._set_device(device)
    return concrete_functions.ConcreteFunction.from_func_graph(
        function.graph, function.function_type, {}
    )


@contextlib.contextmanager
def _named_captures() -> Iterator[None]:
    """Gives what comes from outside a name of its own where TensorFlow counts what it has made.

    That count depends on all that the process has done before.
    """
    capture = FuncGraph.capture

    @functools.wraps(capture)
    def named(self: Any, tensor: Any, name: str | None = None, shape: Any = None) -> Any:
        if name is None and isinstance(tensor, EagerTensor):
            name = "captured"
        return capture(self, tensor, name, shape)

    FuncGraph.capture = named
    try:
        yield
    finally:
        FuncGraph.capture = capture


@contextlib.contextmanager
def _inlined_calls() -> Iterator[None]:
    """Has functions that are called add their operations to the graph that is traced."""
    call = Function.__call__

    @functools.wraps(call)
    def inlined(self: Any, *args: Any, **kwargs: Any) -> Any:
        # What is eager makes a variable's first value, for instance; XLA compiles calls as a whole.
        if tf.executing_eagerly() or self._jit_compile:
            return call(self, *args, **kwargs)
        # The rest is what TensorFlow does when it traces a function: numbers and arrays become
        # tensors, and AutoGraph has control flow become operations.
        bound = canonicalize_function_inputs(
            args, kwargs, self._function_type, self._default_values
        )
        args, kwargs = arrays_as_tensors((bound.args, bound.kwargs))
        function, status = self.python_function, ag_ctx.Status.DISABLED
        options = self._experimental_autograph_options
        if self._autograph:
            function, status = py_func_from_autograph(function, options), ag_ctx.Status.ENABLED
        with ag_ctx.ControlStatusCtx(status, options):
            return function(*args, **kwargs)

    Function.__call__ = inlined
    try:
        yield
    finally:
        Function.__call__ = call


@contextlib.contextmanager
def _reductions_of_nothing() -> Iterator[None]:
    """Leaves out reductions over a single replica.

    Keras reduces all gradients over the replicas at once. Where there is one replica, that is one
    operation that hands all of them on, so that all would pass through one device.
    """
    context = tf.distribute.get_replica_context()
    kind = type(context)
    if tf.distribute.has_strategy() or context is None or "all_reduce" in vars(kind):
        yield
        return

    def all_reduce(self: Any, reduce_op: Any, value: Any, options: Any = None) -> Any:
        del self, reduce_op, options
        return value

    kind.all_reduce = all_reduce
    try:
        yield
    finally:
        del kind.all_reduce
