"""Adapts how TensorFlow traces one function, and no other that is traced at the same time."""

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

__all__ = ["adapt_tracing", "arrays_as_tensors"]


def arrays_as_tensors(arguments: Any) -> Any:
    """Makes arrays in a structure tensors, as a function does that is called with them."""
    return tf.nest.map_structure(
        lambda leaf: tf.constant(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf,
        arguments,
    )


@contextlib.contextmanager
def adapt_tracing(graph: FuncGraph, *, inline: bool) -> Iterator[None]:
    """Adapts the tracing of a graph, and of the bodies of its loops, branches and calls.

    Names of operations become the same in each trace, and no operation hands on all gradients.
    TensorFlow has no hook for the former, so two methods of its classes are wrapped until the graph
    is done. They behave as before in all other graphs.

    Args:
        graph: the graph, which is the default graph.
        inline: whether functions that are called add their operations to the graph.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_reduce_over_nothing(graph))
        capture = functools.partial(_capture_by_name, graph)
        stack.callback(wrap("tensorflow.FuncGraph.capture", capture))
        if inline:
            call = functools.partial(_call_inline, graph)
            stack.callback(wrap("tensorflow.Function.__call__", call))
        yield


@contextlib.contextmanager
def _reduce_over_nothing(graph: FuncGraph) -> Iterator[None]:
    """Leaves out reductions over a single replica.

    Keras reduces all gradients over the replicas at once. Where there is one replica, that is one
    operation that hands all of them on, so that all would pass through one device.
    """
    if tf.distribute.has_strategy() or tf.distribute.get_replica_context() is None:
        yield
        return
    context = _SingleReplica(tf.distribute.get_strategy(), replica_id_in_sync_group=0)
    modes = graph._distribution_strategy_stack
    # To enter the context itself would add an operation to whatever writes a summary.
    modes.append(distribute_lib._InReplicaThreadMode(context))
    try:
        yield
    finally:
        modes.pop()


class _SingleReplica(distribute_lib._DefaultReplicaContext):
    """The only replica, whose reductions are no operations."""

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
    """Gives what comes from outside a name of its own where TensorFlow counts what it has made.

    That count depends on all that the process has done before.
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
    """Adds the operations of a function that is called to the graph that is traced."""
    is_traced = _is_inside(tf.compat.v1.get_default_graph(), traced)
    # What is eager makes a variable's first value, for instance; XLA compiles calls as a whole.
    if not is_traced or tf.executing_eagerly() or function._jit_compile:
        return call(function, *args, **kwargs)
    # The rest is what TensorFlow does when it traces a function: numbers and arrays become
    # tensors, and AutoGraph has control flow become operations.
    bound = canonicalize_function_inputs(
        args, kwargs, function._function_type, function._default_values
    )
    args, kwargs = arrays_as_tensors((bound.args, bound.kwargs))
    python_function, status = function.python_function, ag_ctx.Status.DISABLED
    options = function._experimental_autograph_options
    if function._autograph:
        python_function = py_func_from_autograph(python_function, options)
        status = ag_ctx.Status.ENABLED
    with ag_ctx.ControlStatusCtx(status, options):
        return python_function(*args, **kwargs)
