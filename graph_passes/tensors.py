"""Types and shapes of the tensors of a graph, as far as TensorFlow can infer them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.framework import types_pb2
from tensorflow.python.ops import handle_data_util

from graph_passes.errors import GraphError, StepError
from graph_passes.flattened_graph import FlattenedGraph, Shape
from graph_passes.op_types import VARIABLES
from graph_passes.tensor_list_shapes import parse_tensor_name

__all__ = ["SIZELESS", "TensorListElement", "Tensors", "read_tensors"]

# The DataType of a reference is that of its base type plus this offset.
_REF_OFFSET = 100
#: DataTypes whose elements have no fixed size: handles and strings.
SIZELESS = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_CLASS = "_class"
# Fed values are used for shape inference up to this size: shapes follow from small tensors.
_MAX_SHAPE_INPUT_ELEMENTS = 1024
# The corrected results of one loop may determine the shapes in the next loop.
_MAX_CORRECTION_ROUNDS = 12


@dataclasses.dataclass(frozen=True)
class TensorListElement:
    """The element type of a TensorList.

    Attributes:
        shape: the shape of each element, -1 for an unknown dimension; None for unknown rank.
        dtype: the DataType of the elements.
        value: the integers in each element, taken from the first; None if they are unknown.
    """

    shape: Shape
    dtype: int
    value: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of a graph, numbered operation by operation.

    Attributes:
        output_start: int32 [num_operations + 1], the first tensor of each operation.
        dtypes: int32 [num_tensors], DataType of each tensor, references as their base type.
        shapes: per tensor its shape, -1 for an unknown dimension; None for unknown rank.
        bytes: int64 [num_tensors], -1 where the shape is not known or the type has no size.
        is_reference: bool [num_tensors].
        elements: the elements of TensorLists, by the number of the list's tensor, where known.
    """

    output_start: np.ndarray
    dtypes: np.ndarray
    shapes: tuple[Shape, ...]
    bytes: np.ndarray
    is_reference: np.ndarray
    elements: Mapping[int, TensorListElement]


def read_tensors(
    graph_def: tf.compat.v1.GraphDef, fed: Mapping[str, np.ndarray] | None = None
) -> Tensors:
    """Infers the types and shapes of all tensors by importing the graph into TensorFlow.

    Shapes in a loop are those of its first iteration; sizes that the loop changes are unknown, and
    so are sizes that differ between the branches of a conditional. Operations that select a subset
    of a tensor count as selecting all of it.

    Args:
        graph_def: the graph.
        fed: the fed values by tensor name ("x:0"), from which shapes follow; placeholders that are
            not among them have their default. None if the feeds are unknown.

    Raises:
        GraphError: TensorFlow rejects the graph, or rejects it with these values.
    """
    inference, list_values = _infer_shapes(
        graph_def, _make_stand_ins(graph_def, fed or {}), take_defaults=fed is not None
    )
    outputs = [inference.outputs(node.name) for node in graph_def.node]
    output_start = np.zeros(len(outputs) + 1, np.int32)
    np.cumsum([len(tensors) for tensors in outputs], out=output_start[1:])
    tensors = list(itertools.chain.from_iterable(outputs))
    codes = np.array([tensor.dtype.as_datatype_enum for tensor in tensors], np.int32)
    is_reference = codes > _REF_OFFSET
    codes = np.where(is_reference, codes - _REF_OFFSET, codes)
    shapes = [
        inference.find_shape(node.name, port)
        for node, node_outputs in zip(graph_def.node, outputs, strict=True)
        for port in range(len(node_outputs))
    ]
    lists = {
        number: element
        for number in np.flatnonzero(codes == types_pb2.DT_VARIANT).tolist()
        if (element := _read_element(tensors[number])) is not None
    }
    numbers = {node.name: number for number, node in enumerate(graph_def.node)}
    for (name, port), filled in list_values.items():
        number = int(output_start[numbers[name]]) + port
        value = inference.find_shape(*filled)
        if number in lists and value is not None and lists[number].shape == (len(value),):
            lists[number] = dataclasses.replace(lists[number], value=value)
    sizes = _count_tensor_bytes(shapes, codes)
    return Tensors(output_start, codes, tuple(shapes), sizes, is_reference, lists)


@dataclasses.dataclass(frozen=True, eq=False)
class _StandIn:
    """A constant or placeholder that replaces a tensor during shape inference.

    Attributes:
        dtype: the type of the tensor.
        shape: the shape of the tensor.
        value: the value of the tensor if shapes may follow from it, else None.
    """

    dtype: tf.DType
    shape: Shape
    value: np.ndarray | None = None

    def make(self) -> tf.Tensor:
        """Makes the tensor in the default graph."""
        if self.value is not None:
            return tf.constant(self.value, self.dtype)
        sizes = None if self.shape is None else [None if n < 0 else n for n in self.shape]
        return tf.compat.v1.placeholder(self.dtype, sizes)


def _make_stand_ins(
    graph_def: tf.compat.v1.GraphDef, fed: Mapping[str, np.ndarray]
) -> dict[str, _StandIn]:
    """Makes stand-ins for fed tensors, except references, which a value cannot replace."""
    references = {node.name for node in graph_def.node if node.op in VARIABLES} if fed else set()
    return {
        name: _StandIn(
            tf.dtypes.as_dtype(value.dtype),
            value.shape,
            value if value.dtype.kind in "iu" and value.size <= _MAX_SHAPE_INPUT_ELEMENTS else None,
        )
        for name, value in fed.items()
        if name.partition(":")[0] not in references
    }


class _Inference:
    """The shapes of tensors that TensorFlow's import infers."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, stand_ins: Mapping[str, _StandIn]) -> None:
        """Imports a graph into TensorFlow, with stand-ins for some tensors.

        Raises:
            GraphError: TensorFlow rejects the graph.
        """
        self._graph_def = graph_def
        self._graph = tf.Graph()
        self._scopes = _find_unused_scopes(graph_def)
        self._operations: dict[str, tf.Operation] = {}
        self._stand_in_tensors = self._make_tensors(stand_ins)
        self._import(graph_def, "", self._stand_in_tensors)

    def outputs(self, name: str) -> Sequence[tf.Tensor]:
        """Returns the outputs of an operation."""
        return self._operations[name].outputs

    def find_shape(self, name: str, port: int) -> Shape:
        """Returns the shape of a tensor or its stand-in."""
        tensor = self._stand_in_tensors.get((name, port))
        return _to_sizes((self.outputs(name)[port] if tensor is None else tensor).shape)

    def correct(self, corrections: Mapping[str, Shape]) -> None:
        """Repeats the inference for the successors of tensors whose shapes are corrected.

        Raises:
            GraphError: TensorFlow rejects these shapes; then the known shapes stay.
        """
        dtypes = {}
        for tensor in corrections:
            name, port = parse_tensor_name(tensor)
            dtypes[tensor] = self.outputs(name)[port].dtype.base_dtype
        stand_in_tensors = self._stand_in_tensors | self._make_tensors(
            {tensor: _StandIn(dtypes[tensor], shape) for tensor, shape in corrections.items()}
        )
        affected = self._find_consumers(parse_tensor_name(tensor)[0] for tensor in corrections)
        part = tf.compat.v1.GraphDef(versions=self._graph_def.versions)
        part.node.extend(node for node in self._graph_def.node if node.name in affected)
        read = {}
        for node in part.node:
            # Shapes do not depend on colocation and control inputs, which may name operations
            # outside this part.
            node.attr[_CLASS].Clear()
            data = [text for text in node.input if not text.startswith("^")]
            del node.input[:]
            node.input.extend(data)
            for name, port in map(parse_tensor_name, data):
                if (name, port) in stand_in_tensors:
                    read[name, port] = stand_in_tensors[name, port]
                elif name not in affected:
                    read[name, port] = self.outputs(name)[port]
        self._import(part, next(self._scopes), read)
        self._stand_in_tensors = stand_in_tensors

    def _find_consumers(self, names: Iterable[str]) -> set[str]:
        """Finds the direct and indirect consumers of operations."""
        consumers: dict[str, list[str]] = {}
        for node in self._graph_def.node:
            for text in node.input:
                if not text.startswith("^"):
                    consumers.setdefault(parse_tensor_name(text)[0], []).append(node.name)
        stack, found = list(names), set()
        while stack:
            for consumer in consumers.get(stack.pop(), ()):
                if consumer not in found:
                    found.add(consumer)
                    stack.append(consumer)
        return found

    def _make_tensors(self, stand_ins: Mapping[str, _StandIn]) -> dict[tuple[str, int], tf.Tensor]:
        with self._graph.as_default(), tf.name_scope(next(self._scopes)):
            return {
                parse_tensor_name(tensor): stand_in.make() for tensor, stand_in in stand_ins.items()
            }

    def _import(
        self,
        graph_def: tf.compat.v1.GraphDef,
        scope: str,
        read: Mapping[tuple[str, int], tf.Tensor],
    ) -> None:
        read_instead = {f"{name}:{port}": tensor for (name, port), tensor in read.items()}
        try:
            with self._graph.as_default():
                tf.graph_util.import_graph_def(graph_def, name=scope, input_map=read_instead)
        except (TypeError, ValueError, tf.errors.OpError) as error:  # TypeError: an unknown dtype.
            raise GraphError(f"TensorFlow refuses the graph: {_first_line(error)}") from error
        operations = {operation.name: operation for operation in self._graph.get_operations()}
        prefix = f"{scope}/" if scope else ""
        for node in graph_def.node:
            self._operations[node.name] = operations[prefix + node.name]


def _infer_shapes(
    graph_def: tf.compat.v1.GraphDef, stand_ins: Mapping[str, _StandIn], *, take_defaults: bool
) -> tuple[_Inference, Mapping[tuple[str, int], tuple[str, int]]]:
    """Infers shapes, and applies corrections until they change nothing.

    Returns:
        The inferred shapes, and for TensorLists of integers the tensors whose shapes are these
        integers.
    """
    flattened = FlattenedGraph(graph_def, take_defaults=take_defaults)
    try:
        inference = _Inference(flattened.graph_def, stand_ins)
    except GraphError as error:
        # The error message must describe the original graph, not the flattened one.
        inference = _Inference(graph_def, {})
        if not stand_ins:
            return inference, {}
        raise StepError(f"with the values that are fed, {error}") from None
    for _ in range(_MAX_CORRECTION_ROUNDS):
        found = flattened.find_corrections(inference.find_shape)
        corrections = {tensor: shape for tensor, shape in found.items() if tensor not in stand_ins}
        if not corrections:
            break
        try:
            inference.correct(corrections)
        except GraphError as error:
            # The correction contradicts the graph: keep the shapes inferred without it. For
            # example, a selection is smaller in a step than its upper bound.
            logging.debug("the shapes %s do not fit: %s", list(corrections), error)
            break
    return inference, flattened.list_values


def _find_unused_scopes(graph_def: tf.compat.v1.GraphDef) -> Iterator[str]:
    taken = {node.name.partition("/")[0] for node in graph_def.node}
    return (name for n in itertools.count() if (name := f"tf_placer_{n}") not in taken)


def _read_element(tensor: tf.Tensor) -> TensorListElement | None:
    """Reads the element type of a TensorList, if TensorFlow has inferred it."""
    data = handle_data_util.get_handle_data(tensor)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    [held] = data.shape_and_type
    return TensorListElement(_to_sizes(tf.TensorShape(held.shape)), held.dtype)


def _to_sizes(shape: tf.TensorShape) -> Shape:
    if shape.rank is None:
        return None
    sizes = shape.as_list()
    return tuple(-1 if size is None else size for size in sizes) if None in sizes else tuple(sizes)


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _count_tensor_bytes(shapes: Sequence[tuple[int, ...] | None], dtypes: np.ndarray) -> np.ndarray:
    # Few pairs of shape and type are distinct.
    kinds = list(zip(shapes, dtypes.tolist(), strict=True))
    counts = {(shape, code): _count_bytes(shape, code) for shape, code in set(kinds)}
    return np.array([counts[kind] for kind in kinds], np.int64)


def _count_bytes(shape: tuple[int, ...] | None, code: int) -> int:
    of_element = _count_element_bytes(code)
    if of_element < 0 or shape is None or any(size < 0 for size in shape):
        return -1
    # The product may exceed int64.
    return min(of_element * math.prod(shape), 2**62)


def _count_element_bytes(code: int) -> int:
    """Returns the bytes of one element of a DataType; -1 where elements have no fixed size."""
    if code in SIZELESS:
        return -1
    return max(1, tf.dtypes.as_dtype(code).size)
