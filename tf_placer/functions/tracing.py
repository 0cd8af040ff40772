"""Adapts how TensorFlow traces one function, and no other that is traced at the same time."""

from __future__ import annotations

import contextlib
import functools
import threading
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
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.framework.func_graph import FuncGraph
from tensorflow.python.framework.ops import EagerTensor

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
    TensorFlow has no hook for the former, so two methods of its classes are exchanged. They behave
    as before in all other graphs, and are put back when the last graph is done.

    Args:
        graph: the graph, which is the default graph.
        inline: whether functions that are called add their operations to the graph.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_reduce_over_nothing(graph))
        for method in (_CAPTURE, _CALL) if inline else (_CAPTURE,):
            stack.enter_context(method.exchange_for(graph))
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


class _ExchangedMethod:
    """A method of a class of TensorFlow that behaves differently in some graphs.

    Args:
        kind: the class.
        name: the name of the method.
        adapted: the method for these graphs; its first argument is the original method.
        graph_of: finds the graph that a call of the method, with these arguments, belongs to.
    """

    def __init__(
        self,
        kind: type,
        name: str,
        adapted: Callable[..., Any],
        graph_of: Callable[[Any], Any],
    ) -> None:
        self._kind, self._name = kind, name
        self._adapted, self._graph_of = adapted, graph_of
        self._lock = threading.Lock()
        self._graphs: set[FuncGraph] = set()
        self._original: Any = None
        self._exchanged: Any = None

    @contextlib.contextmanager
    def exchange_for(self, graph: FuncGraph) -> Iterator[None]:
        """Exchanges the method in a graph and in graphs of functions inside it."""
        with self._lock:
            if not self._graphs:
                self._exchange()
            self._graphs.add(graph)
        try:
            yield
        finally:
            with self._lock:
                self._graphs.discard(graph)
                if not self._graphs:
                    self._put_back()

    def _exchange(self) -> None:
        original = getattr(self._kind, self._name)

        @functools.wraps(original)
        def exchanged(instance: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_for(self._graph_of(instance)):
                return self._adapted(original, instance, *args, **kwargs)
            return original(instance, *args, **kwargs)

        self._original, self._exchanged = original, exchanged
        setattr(self._kind, self._name, exchanged)

    def _put_back(self) -> None:
        # A method that others have put in its place since then may call it, and stays.
        if getattr(self._kind, self._name) is self._exchanged:
            setattr(self._kind, self._name, self._original)

    def _is_for(self, graph: Any) -> bool:
        while isinstance(graph, FuncGraph):
            if graph in self._graphs:
                return True
            graph = graph.outer_graph
        return False


def _capture_by_name(
    capture: Callable[..., Any], graph: Any, tensor: Any, name: Any = None, shape: Any = None
) -> Any:
    """Gives what comes from outside a name of its own where TensorFlow counts what it has made.

    That count depends on all that the process has done before.
    """
    if name is None and isinstance(tensor, EagerTensor):
        name = "captured"
    return capture(graph, tensor, name, shape)


def _call_inline(call: Callable[..., Any], function: Any, *args: Any, **kwargs: Any) -> Any:
    """Adds the operations of a function that is called to the graph that is traced."""
    # What is eager makes a variable's first value, for instance; XLA compiles calls as a whole.
    if tf.executing_eagerly() or function._jit_compile:
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


_CAPTURE = _ExchangedMethod(FuncGraph, "capture", _capture_by_name, lambda graph: graph)
_CALL = _ExchangedMethod(
    Function, "__call__", _call_inline, lambda _: tf.compat.v1.get_default_graph()
)
