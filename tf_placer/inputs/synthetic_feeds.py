"""Checks given feeds, and makes up values for placeholders without one."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from graph_passes.errors import StepError
from graph_passes.op_graph import OpGraph
from graph_passes.util.json_text import format_value

__all__ = ["PLACEHOLDERS", "complete_feeds", "convert_value", "synthesize_value"]

#: Operation types that have a value only if they are fed.
PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# Synthetic values are written to files and loaded by several processes.
_MAX_SYNTHETIC_BYTES = 2**30


def complete_feeds(
    graph: OpGraph, given: Mapping[str, Any], *, seed: int = 0
) -> dict[str, np.ndarray]:
    """Checks the given feeds and makes up the missing ones.

    Synthetic floating-point numbers are drawn from the normal distribution. Integers are 0, which
    is a valid index, label and length everywhere; Booleans are False and strings empty.

    Args:
        graph: the graph, with the operations of the step marked.
        given: values by tensor name ("x:0").
        seed: the seed of synthetic numbers.

    Returns:
        A value of the tensor's type for each fed tensor.

    Raises:
        StepError: a value does not fit its tensor, or a needed placeholder without a value has no
            fully defined shape or is a handle.
    """
    feeds = {name: _check_feed(graph, name, value) for name, value in given.items()}
    is_placeholder = graph.has_type(PLACEHOLDERS) & graph.needed
    for i in np.flatnonzero(is_placeholder).tolist():
        name = f"{graph.names[i]}:0"
        if name not in feeds:
            feeds[name] = _synthesize_feed(graph, name, seed)
    return feeds


def _find_numpy_type(graph: OpGraph, tensor: int) -> np.dtype[Any] | None:
    code = int(graph.tensor_dtypes[tensor])
    if code in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT):
        return None
    return np.dtype(tf.dtypes.as_dtype(code).as_numpy_dtype)


def _check_feed(graph: OpGraph, name: str, value: Any) -> np.ndarray:
    tensor = graph.tensor_index(name)
    dtype, shape = _find_numpy_type(graph, tensor), graph.tensor_shapes[tensor]
    if dtype is None:
        raise StepError(f"the tensor {name!r} is a handle, which cannot be fed")
    try:
        array = convert_value(value, dtype)
    except (NotImplementedError, TypeError, ValueError) as error:
        # A symbolic tensor raises NotImplementedError.
        reason = " ".join(str(error).split())
        raise StepError(f"the feed of {name!r} is not of type {dtype}: {reason}") from error
    if dtype == np.object_ and not all(isinstance(item, str | bytes) for item in array.flat):
        raise StepError(f"the feed of {name!r} is not of strings")
    if shape is not None and (
        len(shape) != array.ndim
        or any(size not in (-1, given) for size, given in zip(shape, array.shape, strict=True))
    ):
        raise StepError(
            f"the feed of {name!r} has the shape {list(array.shape)}, the tensor {_describe(shape)}"
        )
    return array


def convert_value(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """Converts a value to an array of a type, without loss.

    Raises:
        NotImplementedError, TypeError, ValueError: the type cannot hold a value; the message names
            the value.
    """
    given = np.asarray(value)
    # Quantized numbers are structured types (`names`), which `astype` cannot convert.
    if dtype == np.object_ or dtype.names is not None or given.dtype == dtype:
        return np.asarray(value, dtype)
    if given.dtype.kind not in "biufcV" and given.size:
        # For example strings, which NumPy would parse as numbers, or integers beyond 64 bits.
        raise ValueError(f"it has {format_value(given.flat[0])}")
    # NumPy would warn about dropped imaginary parts, which are checked below. Filtering warnings
    # would affect other threads.
    real = given.real if given.dtype.kind == "c" and dtype.kind != "c" else given
    with np.errstate(all="ignore"):
        array = real.astype(dtype)
        if dtype.kind in "biu":
            fits = array == given
        elif given.dtype.kind == "c" and dtype.kind != "c":
            fits = given.imag == 0
        else:
            fits = np.isfinite(array) | ~np.isfinite(given)
    if not np.all(fits):
        raise ValueError(f"it has {given[~fits].flat[0]}, which would be another value")
    return array


def _synthesize_feed(graph: OpGraph, name: str, seed: int) -> np.ndarray:
    tensor = graph.tensor_index(name)
    dtype, shape = _find_numpy_type(graph, tensor), graph.tensor_shapes[tensor]
    if dtype is None:
        raise StepError(
            f"the placeholder {name!r} stands for a handle, which cannot be fed. Graphs of "
            "functions take their variables so: build the model in a tf.Graph, or make its "
            "variables constants with convert_variables_to_constants_v2"
        )
    if shape is None or -1 in shape:
        raise StepError(
            f"the placeholder {name!r} has the shape {_describe(shape)}, so no value can be made "
            "up for it: pass one in feed_dict (--feeds)"
        )
    needed_bytes = math.prod(shape) * dtype.itemsize
    if needed_bytes > _MAX_SYNTHETIC_BYTES:
        raise StepError(
            f"the placeholder {name!r} has the shape {_describe(shape)}, which takes "
            f"{needed_bytes / 2**30:.3g} GiB, so no value is made up for it: pass one in feed_dict "
            "(--feeds)"
        )
    return synthesize_value(
        name, tf.dtypes.as_dtype(int(graph.tensor_dtypes[tensor])), shape, seed=seed
    )


def synthesize_value(
    name: str, dtype: tf.DType, shape: tuple[int, ...], *, seed: int = 0
) -> np.ndarray:
    """Makes up a value; see `complete_feeds`.

    Args:
        name: the name of the tensor. Each has its own generator, so that its value does not depend
            on the others.
        dtype: the type, neither a resource nor a variant.
        shape: the shape.
        seed: the seed of synthetic numbers.
    """
    numpy_type = np.dtype(dtype.as_numpy_dtype)
    if numpy_type == np.object_:
        return np.full(shape, b"", np.object_)
    if not dtype.is_floating and not dtype.is_complex:
        return np.zeros(shape, numpy_type)
    random = np.random.default_rng([seed, zlib.crc32(name.encode())])
    return random.standard_normal(shape).astype(numpy_type)


def _describe(shape: tuple[int, ...] | None) -> str:
    if shape is None:
        return "unknown"
    return "[" + ", ".join("?" if size < 0 else str(size) for size in shape) + "]"
