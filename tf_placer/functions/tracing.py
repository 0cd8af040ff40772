"""Adapts how TensorFlow traces one function, without affecting concurrent traces of others."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.distribute import distribute_lib
from tensorflow.python.eager.polymorphic_function.autograph_util import py_func_from_autograph
from tensorflow.python.eager.polymorphic_function.function_type_utils import (
    canonicalize_function_inputs,
)
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor

from tf_placer.patches import wrap

__all__ = ["adapt_tracing", "convert_arrays"]


def convert_arrays(arguments: Any) -> Any:
    """Converts the arrays in a structure to tensors, as the call of a function does."""
    return tf.nest.map_structure(
        lambda leaf: tf.constant(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf,
        arguments,
    )


@contextlib.contextmanager
def adapt_tracing(graph: FuncGraph, *, inline: bool) -> Iterator[None]:
    """Adapts the tracing of a graph, and of the bodies of its loops, branches and calls.

    The names of operations become the same in each trace, and gradients do not all pass through one
    operation. TensorFlow has no hook for the names, so two methods of its classes are wrapped until
    the graph is complete. They behave as before in all other graphs.

    Args:
        graph: the graph to be traced, which is the default graph.
        inline: whether called functions are inlined into the graph.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_skip_reductions(graph))
        capture = functools.partial(_capture_by_name, graph)
        stack.callback(wrap("tensorflow.FuncGraph.capture", capture))
        if inline:
            call = functools.partial(_call_inline, graph)
            stack.callback(wrap("tensorflow.Function.__call__", call))
        yield


@contextlib.contextmanager
def _skip_reductions(graph: FuncGraph) -> Iterator[None]:
    """Omits reductions over a single replica.

    Keras reduces all gradients over the replicas at once. With a single replica this is one
    identity operation on all gradients, which would all pass through its device.
    """
    if tf.distribute.has_strategy() or tf.distribute.get_replica_context() is None:
        yield
        return
    context = _SingleReplica(tf.distribute.get_strategy(), replica_id_in_sync_group=0)
    modes = graph._distribution_strategy_stack
    # Entering the context itself would add an operation to functions that write summaries.
    modes.append(distribute_lib._InReplicaThreadMode(context))
    try:
        yield
    finally:
        modes.pop()


class _SingleReplica(distribute_lib._DefaultReplicaContext):
    """The only replica, whose reductions add no operations."""

    def all_reduce(self, reduce_op: Any, value: Any, options: Any = None) -> Any:
        """Returns the value, which is the sum and the mean of itself."""
        del reduce_op, options
        return value


def _is_inside(graph: Any, traced: FuncGraph) -> bool:
    while isinstance(graph, FuncGraph):
        if graph is traced:
            return True
        graph = graph.outer_graph
    return False


def _capture_by_name(
    traced: FuncGraph,
    capture: Callable[..., Any],
    graph: Any,
    /,
    tensor: Any,
    name: Any = None,
    shape: Any = None,
) -> Any:
    """Names a captured tensor "captured" instead of by TensorFlow's process-wide counter.

    The counter depends on everything that the process has created before.
    """
    if name is None and isinstance(tensor, EagerTensor) and _is_inside(graph, traced):
        name = "captured"
    return capture(graph, tensor, name, shape)


def _call_inline(
    traced: FuncGraph,
    call: Callable[..., Any],
    function: Any,
    /,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Inlines the operations of a called function into the traced graph."""
    is_traced = _is_inside(tf.compat.v1.get_default_graph(), traced)
    # Eager calls, such as those in a variable's initializer, add nothing to the graph. XLA compiles
    # a call as a whole.
    if not is_traced or tf.executing_eagerly() or function._jit_compile:
        return call(function, *args, **kwargs)
    # The rest repeats TensorFlow's own tracing: numbers and arrays become tensors, and AutoGraph
    # converts control flow to operations.
    bound = canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values
    )
    args, kwargs = convert_arrays((bound.args, bound.kwargs))
    python_function, status = function.python_function, ag_ctx.Status.DISABLED
    options = function._experimental_autograph_options
    if function._autograph:
        python_function = py_func_from_autograph(python_function, options)
        status = ag_ctx.Status.ENABLED
    with ag_ctx.ControlStatusCtx(status, options):
        return python_function(*args, **kwargs)
