"""Traces a Python function again and sets the devices of its operations."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from graph_passes.host_copies import HostCopy
from tf_placer.functions.host_copies import insert_host_copies
from tf_placer.functions.tracing import adapt_tracing

__all__ = ["place_function"]


def place_function(
    function: Callable[..., Any],
    device_of: Callable[[str], str],
    copies: Iterable[HostCopy] = (),
    *,
    inline: bool,
    autograph: bool,
    input_signature: Any = None,
) -> Any:
    """Makes a tf.function whose operations are on devices.

    The names of operations are the same in each trace, so that a placement for one trace is valid
    for the next. The operations of gradients that the function computes are placed, too.

    Args:
        function: a Python function.
        device_of: returns the device of an operation by its name; "" sets none.
        copies: the tensors that wait on the CPU.
        inline: whether called functions are inlined, so that each of their operations gets a
            device.
        autograph: see tf.function.
        input_signature: see tf.function.

    Returns:
        The tf.function.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()

        def device(operation: tf.Operation) -> str:
            # Bodies of loops and branches stay on the device of the operation that runs them.
            of_name = device_of(operation.name) if operation.graph is graph else ""
            return of_name or operation.device

        with graph.device(device), adapt_tracing(graph, inline=inline):
            results = function(*args, **kwargs)
        insert_host_copies(graph, copies)
        return results

    return tf.function(call, autograph=autograph, input_signature=input_signature)
