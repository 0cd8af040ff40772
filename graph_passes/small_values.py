"""Constant folding of the small integer tensors that determine sizes and iteration counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.op_graph import OpGraph

__all__ = ["IDENTITIES", "SmallValues"]

#: Operations whose output is their first input.
IDENTITIES = frozenset(["Identity", "RefIdentity", "Enter", "RefEnter", "StopGradient", "Snapshot"])
# Sizes are computed from small tensors, a few operations away.
_MAX_ELEMENTS = 1024
_MAX_DEPTH = 40
_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "Add": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "FloorDiv": lambda a, b: a // np.where(b == 0, 1, b),
    "Minimum": np.minimum,
    "Maximum": np.maximum,
}
_REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "Max": np.max,
    "Min": np.min,
    "Sum": np.sum,
    "Prod": np.prod,
}


class SmallValues:
    """Values of tensors, as far as they follow from constants and shapes."""

    def __init__(self, graph: OpGraph, given: Mapping[int, np.ndarray] | None = None) -> None:
        """Starts without any computed value.

        Args:
            graph: the graph; fed values are unknown.
            given: values of some of its tensors.
        """
        self.graph = graph
        self._known: dict[int, np.ndarray | None] = dict(given or {})

    def set_value(self, tensor: int, value: np.ndarray) -> None:
        """Sets the value of a tensor."""
        self._known[tensor] = value

    def value(self, tensor: int, depth: int = 0) -> np.ndarray | None:
        """Computes the integers in a tensor; upper bounds where a minimum is partly known.

        Args:
            tensor: the number of the tensor.
            depth: the number of operations between the first request and this tensor.

        Returns:
            An int64 or bool array of the shape of the tensor; None if the values are unknown.
        """
        if tensor not in self._known:
            if depth > _MAX_DEPTH or self.graph.fed[tensor]:
                return None
            self._known[tensor] = None  # Ends cycles: values in a loop are unknown.
            try:
                found = self._compute(tensor, depth)
            except (IndexError, TypeError, ValueError):  # TensorFlow would fail, too.
                found = None
            if found is not None:
                found = np.asarray(found)
                if found.dtype.kind not in "iub" or found.size > _MAX_ELEMENTS:
                    found = None
            self._known[tensor] = found
        return self._known[tensor]

    def find_origin(self, tensor: int) -> int:
        """Follows identities back to the tensor that is computed."""
        graph = self.graph
        while True:
            producer = int(graph.tensor_producer[tensor])
            if graph.fed[tensor] or graph.type_of(producer) not in IDENTITIES:
                return tensor
            tensor = graph.input_tensors[producer][0]

    def _compute(self, tensor: int, depth: int) -> Any:
        graph = self.graph
        i = int(graph.tensor_producer[tensor])
        op_type, inputs = graph.type_of(i), graph.input_tensors[i]
        node = graph.graph_def.node[i]
        if op_type == "Const":
            shape = node.attr["value"].tensor.tensor_shape
            if math.prod(dim.size for dim in shape.dim) > _MAX_ELEMENTS:
                return None
            return tf.make_ndarray(node.attr["value"].tensor)
        if op_type in ("Shape", "ShapeN", "Size", "Rank"):
            return self._evaluate_shape(op_type, inputs[tensor - int(graph.output_start[i])])
        if op_type == "TensorArraySizeV3":
            array = int(graph.tensor_producer[self.find_origin(inputs[0])])
            is_made = graph.type_of(array) == "TensorArrayV3"
            return self.value(graph.input_tensors[array][0], depth + 1) if is_made else None
        if op_type in IDENTITIES or op_type in ("PlaceholderWithDefault", "Cast", "Switch"):
            return self.value(inputs[0], depth + 1)
        values = [self.value(each, depth + 1) for each in inputs]
        known = [each for each in values if each is not None]
        if op_type == "Minimum" and len(known) == 1:
            return known[0]
        if len(known) < len(values) or not values:
            return None
        return _evaluate(op_type, node, known)

    def _evaluate_shape(self, op_type: str, tensor: int) -> Any:
        shape = self.graph.tensor_shapes[tensor]
        if shape is None or (op_type != "Rank" and -1 in shape):
            return None
        return {"Size": math.prod(shape), "Rank": len(shape)}.get(op_type, np.array(shape))


def _evaluate(op_type: str, node: tf.compat.v1.NodeDef, values: list[np.ndarray]) -> Any:
    """Computes the result of an operation with known inputs; None for unsupported types."""
    if op_type in _BINARY:
        return _BINARY[op_type](*values)
    if op_type in _REDUCTIONS:
        axes = tuple(np.ravel(values[1]).tolist())
        return _REDUCTIONS[op_type](values[0], axis=axes, keepdims=node.attr["keep_dims"].b)
    if op_type == "Pack":
        return np.stack(values, node.attr["axis"].i)
    if op_type == "ConcatV2":
        return np.concatenate(values[:-1], int(values[-1]))
    if op_type in ("GatherV2", "Gather"):
        return np.take(values[0], values[1], int(values[2]) if len(values) > 2 else 0)
    if op_type == "Reshape":
        return np.reshape(values[0], values[1])
    if op_type == "ExpandDims":
        return np.expand_dims(values[0], int(values[1]))
    if op_type == "Squeeze":
        return np.squeeze(values[0], tuple(node.attr["squeeze_dims"].list.i) or None)
    if op_type == "StridedSlice":
        return _slice(node, *values)
    return None


def _slice(
    node: tf.compat.v1.NodeDef,
    value: np.ndarray,
    begin: np.ndarray,
    end: np.ndarray,
    strides: np.ndarray,
) -> np.ndarray | None:
    if any(node.attr[name].i for name in ("ellipsis_mask", "new_axis_mask")):
        return None
    keys: list[int | slice] = []
    for number, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << number
        if node.attr["shrink_axis_mask"].i & bit:
            keys.append(int(first))
            continue
        keys.append(
            slice(
                None if node.attr["begin_mask"].i & bit else int(first),
                None if node.attr["end_mask"].i & bit else int(last),
                int(stride),
            )
        )
    return np.asarray(value[tuple(keys)])
