"""A function with devices: traced again, each operation on the device of its name."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tf_placer.functions.tracing import adapt_tracing

__all__ = ["placed_function"]


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

        with graph.device(device), adapt_tracing(graph, inline=inline):
            return function(*args, **kwargs)

    return tf.function(placed, autograph=autograph, input_signature=input_signature)
