"""Reads the next elements of a data set iterator without consuming them."""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["peek_elements", "to_feed_value"]

_TAKES = "IteratorGetNext"


def to_feed_value(value: tf.Tensor) -> np.ndarray:
    """Converts a tensor to an array that can be fed."""
    # `numpy` returns a scalar string as bytes, not as an array.
    return np.asarray(value.numpy(), object if value.dtype == tf.string else None)


def peek_elements(inner: tf.Tensor, iterator: tf.Tensor) -> dict[str, np.ndarray]:
    """Reads the elements that one call of a function would take, and restores the iterator.

    A second iterator over the data set would not do: a data set that reshuffles for each iterator
    would use another order from then on.

    Args:
        inner: the argument for the iterator in the graph of the function.
        iterator: the handle of the iterator.

    Returns:
        The values by tensor name in the graph, in the order in which the function takes them; empty
        if the resource is no iterator, or if an operation other than `IteratorGetNext`, such as a
        loop, uses it.

    Raises:
        GraphError: the state of the iterator cannot be saved, it has no more elements, or its
            elements cannot be fed; the message says what to do.
    """
    takers = inner.consumers()
    if not takers or any(operation.type != _TAKES for operation in takers):
        return {}
    found: dict[str, np.ndarray] = {}
    try:
        state = tf.raw_ops.SerializeIterator(resource_handle=iterator)
    except tf.errors.OpError as error:
        raise _make_error(inner, f"cannot be saved ({_first_line(error)})") from error
    try:
        for operation in takers:
            values = tf.raw_ops.IteratorGetNext(
                iterator=iterator,
                output_types=operation.get_attr("output_types"),
                output_shapes=operation.get_attr("output_shapes"),
            )
            for tensor, value in zip(operation.outputs, values, strict=True):
                if tensor.dtype == tf.variant:
                    raise _make_error(inner, "gives sparse or ragged tensors, or data sets")
                found[tensor.name] = to_feed_value(value)
    except tf.errors.OutOfRangeError as error:
        raise GraphError(f"the iterator {inner.op.name!r} has no more elements") from error
    except tf.errors.OpError as error:
        raise _make_error(inner, f"gives nothing ({_first_line(error)})") from error
    finally:
        tf.raw_ops.DeserializeIterator(resource_handle=iterator, serialized=state)
    return found


def _make_error(inner: tf.Tensor, reason: str) -> GraphError:
    return GraphError(
        f"the iterator {inner.op.name!r} {reason}: have the function take what the iterator gives "
        "as an argument"
    )


def _first_line(error: tf.errors.OpError) -> str:
    """Returns the first line of an error message without the names of operations."""
    line = str(error.message).strip().partition("\n")[0]
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", line).rstrip(".")
