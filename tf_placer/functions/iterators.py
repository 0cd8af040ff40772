"""Iterators of data sets that a function takes elements from."""

from __future__ import annotations

import re

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError

__all__ = ["fed_value", "next_elements"]

_TAKES = "IteratorGetNext"


def fed_value(value: tf.Tensor) -> np.ndarray:
    """Makes an array of a tensor; a single string is no array by itself."""
    return np.asarray(value.numpy(), object if value.dtype == tf.string else None)


def next_elements(inner: tf.Tensor, iterator: tf.Tensor) -> dict[str, np.ndarray]:
    """Looks at what a function would take from an iterator, which is left as it was.

    To iterate over the data set once more would not do: data sets that shuffle anew each time
    would shuffle in another order from then on.

    Args:
        inner: the iterator, as an argument in the graph of the function.
        iterator: its handle.

    Returns:
        The values by the names of the tensors in the graph, in the order in which the function
        takes them; none if it is no iterator, or if the function has others, such as a loop, take
        what it gives.

    Raises:
        GraphError: the iterator cannot be looked at without taking something from it, has nothing
            more, or gives what cannot be fed; the message says what to do.
    """
    takers = inner.consumers()
    if not takers or any(operation.type != _TAKES for operation in takers):
        return {}
    found: dict[str, np.ndarray] = {}
    try:
        state = tf.raw_ops.SerializeIterator(resource_handle=iterator)
    except tf.errors.OpError as error:
        raise _refused(inner, f"cannot be saved ({_first_line(error)})") from error
    try:
        for operation in takers:
            values = tf.raw_ops.IteratorGetNext(
                iterator=iterator,
                output_types=operation.get_attr("output_types"),
                output_shapes=operation.get_attr("output_shapes"),
            )
            for tensor, value in zip(operation.outputs, values, strict=True):
                if tensor.dtype == tf.variant:
                    raise _refused(inner, "gives sparse or ragged tensors, or data sets")
                found[tensor.name] = fed_value(value)
    except tf.errors.OutOfRangeError as error:
        raise GraphError(f"the iterator {inner.op.name!r} has no more elements") from error
    except tf.errors.OpError as error:
        raise _refused(inner, f"gives nothing ({_first_line(error)})") from error
    finally:
        tf.raw_ops.DeserializeIterator(resource_handle=iterator, serialized=state)
    return found


def _refused(inner: tf.Tensor, reason: str) -> GraphError:
    return GraphError(
        f"the iterator {inner.op.name!r} {reason}: have the function take what the iterator gives "
        "as an argument"
    )


def _first_line(error: tf.errors.OpError) -> str:
    """Leaves out where TensorFlow was when it happened."""
    line = str(error.message).strip().partition("\n")[0]
    return re.sub(r"\{\{.*?\}\}\s*|\s*\[Op:.*", "", line).rstrip(".")
