"""The tensors of a graph: their types and shapes, as far as TensorFlow can infer them."""

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

from graph_passes.errors import GraphError
from graph_passes.list_elements import producer
from graph_passes.op_types import VARIABLES
from graph_passes.straight_graph import Shape, StraightGraph

__all__ = ["SIZELESS", "ListElement", "Tensors", "read_tensors"]

# DataType values of reference tensors are those of their base type plus this.
_REF_OFFSET = 100
#: DataTypes whose elements have no bytes of their own: handles, and texts of unknown length.
SIZELESS = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_CLASS = "_class"
# What a graph computes shapes from is small.
_LARGEST_SHAPE_VALUE = 1024
# What is known of one loop's results may tell the shapes in the next loop.
_MAX_ROUNDS = 12


@dataclasses.dataclass(frozen=True)
class ListElement:
    """What a list of tensors holds.

    Attributes:
        shape: of each of them, -1 for an unknown dimension; None for unknown rank.
        dtype: their DataType.
        value: the whole numbers that each is, as far as known of the first.
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
        elements: of each list of tensors of which that is known, what it holds.
    """

    output_start: np.ndarray
    dtypes: np.ndarray
    shapes: tuple[Shape, ...]
    bytes: np.ndarray
    is_reference: np.ndarray
    elements: Mapping[int, ListElement]


def read_tensors(
    graph_def: tf.compat.v1.GraphDef, fed: Mapping[str, np.ndarray] | None = None
) -> Tensors:
    """Has TensorFlow import the graph and infer the shapes of its tensors.

    Shapes are those of the first iteration of a loop, but for sizes that the loop changes, which
    are unknown. So are sizes that differ between the branches of a conditional. What selects from a
    tensor counts as selecting all of it.

    Args:
        graph_def: the graph.
        fed: values by tensor name ("x:0"), which shapes follow from: a placeholder with a default
            that is not among them is its default. None if it is not known what is fed.

    Raises:
        GraphError: TensorFlow refuses the graph, or refuses it with these values.
    """
    inference, list_values = _inferred(
        graph_def, _stand_ins(graph_def, fed or {}), take_defaults=fed is not None
    )
    outputs = [inference.outputs(node.name) for node in graph_def.node]
    output_start = np.zeros(len(outputs) + 1, np.int32)
    np.cumsum([len(tensors) for tensors in outputs], out=output_start[1:])
    tensors = list(itertools.chain.from_iterable(outputs))
    codes = np.array([tensor.dtype.as_datatype_enum for tensor in tensors], np.int32)
    is_reference = codes > _REF_OFFSET
    codes = np.where(is_reference, codes - _REF_OFFSET, codes)
    shapes = [
        inference.shape_of(node.name, port)
        for node, of_node in zip(graph_def.node, outputs, strict=True)
        for port in range(len(of_node))
    ]
    lists = {
        number: element
        for number in np.flatnonzero(codes == types_pb2.DT_VARIANT).tolist()
        if (element := _element(tensors[number])) is not None
    }
    numbers = {node.name: number for number, node in enumerate(graph_def.node)}
    for (name, port), filled in list_values.items():
        number = int(output_start[numbers[name]]) + port
        value = inference.shape_of(*filled)
        if number in lists and value is not None and lists[number].shape == (len(value),):
            lists[number] = dataclasses.replace(lists[number], value=value)
    sizes = _tensor_bytes(shapes, codes)
    return Tensors(output_start, codes, tuple(shapes), sizes, is_reference, lists)


@dataclasses.dataclass(frozen=True, eq=False)
class _StandIn:
    """What is read instead of a tensor.

    Attributes:
        dtype: of the tensor.
        shape: of the tensor.
        value: its value where shapes may follow from that, else None.
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


def _stand_ins(
    graph_def: tf.compat.v1.GraphDef, fed: Mapping[str, np.ndarray]
) -> dict[str, _StandIn]:
    """Makes stand-ins for what is fed, but for references, which no value can take the place of."""
    references = {node.name for node in graph_def.node if node.op in VARIABLES} if fed else set()
    return {
        name: _StandIn(
            tf.dtypes.as_dtype(value.dtype),
            value.shape,
            value if value.dtype.kind in "iu" and value.size <= _LARGEST_SHAPE_VALUE else None,
        )
        for name, value in fed.items()
        if name.partition(":")[0] not in references
    }


class _Inference:
    """The shapes of a graph's tensors, as far as TensorFlow's import has inferred them."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, stand_ins: Mapping[str, _StandIn]) -> None:
        """Has TensorFlow import a graph, reading stand-ins instead of some tensors.

        Raises:
            GraphError: TensorFlow refuses it.
        """
        self._graph_def = graph_def
        self._graph = tf.Graph()
        self._scopes = _unused_scopes(graph_def)
        self._operations: dict[str, tf.Operation] = {}
        self._instead = self._made(stand_ins)
        self._import(graph_def, "", self._instead)

    def outputs(self, name: str) -> Sequence[tf.Tensor]:
        """Returns the outputs of an operation."""
        return self._operations[name].outputs

    def shape_of(self, name: str, port: int) -> Shape:
        """Returns the shape of a tensor, or of what is read instead."""
        tensor = self._instead.get((name, port))
        return _sizes((self.outputs(name)[port] if tensor is None else tensor).shape)

    def correct(self, corrections: Mapping[str, Shape]) -> None:
        """Infers again what follows from tensors of these shapes, and only that.

        Raises:
            GraphError: TensorFlow refuses it; then what was known stays.
        """
        dtypes = {}
        for tensor in corrections:
            name, port = producer(tensor)
            dtypes[tensor] = self.outputs(name)[port].dtype.base_dtype
        instead = self._instead | self._made(
            {tensor: _StandIn(dtypes[tensor], shape) for tensor, shape in corrections.items()}
        )
        follows = self._following(producer(tensor)[0] for tensor in corrections)
        part = tf.compat.v1.GraphDef(versions=self._graph_def.versions)
        part.node.extend(node for node in self._graph_def.node if node.name in follows)
        read = {}
        for node in part.node:
            # No shape depends on these, and their other ends may not be in this part.
            node.attr[_CLASS].Clear()
            data = [text for text in node.input if not text.startswith("^")]
            del node.input[:]
            node.input.extend(data)
            for name, port in map(producer, data):
                if (name, port) in instead:
                    read[name, port] = instead[name, port]
                elif name not in follows:
                    read[name, port] = self.outputs(name)[port]
        self._import(part, next(self._scopes), read)
        self._instead = instead

    def _following(self, names: Iterable[str]) -> set[str]:
        """Finds the operations that read, directly or not, what these operations make."""
        consumers: dict[str, list[str]] = {}
        for node in self._graph_def.node:
            for text in node.input:
                if not text.startswith("^"):
                    consumers.setdefault(producer(text)[0], []).append(node.name)
        stack, found = list(names), set()
        while stack:
            for consumer in consumers.get(stack.pop(), ()):
                if consumer not in found:
                    found.add(consumer)
                    stack.append(consumer)
        return found

    def _made(self, stand_ins: Mapping[str, _StandIn]) -> dict[tuple[str, int], tf.Tensor]:
        with self._graph.as_default(), tf.name_scope(next(self._scopes)):
            return {producer(tensor): stand_in.make() for tensor, stand_in in stand_ins.items()}

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
        except (TypeError, ValueError, tf.errors.OpError) as error:  # the first of an unknown dtype
            raise GraphError(f"TensorFlow refuses the graph: {_first_line(error)}") from error
        operations = {operation.name: operation for operation in self._graph.get_operations()}
        prefix = f"{scope}/" if scope else ""
        for node in graph_def.node:
            self._operations[node.name] = operations[prefix + node.name]


def _inferred(
    graph_def: tf.compat.v1.GraphDef, stand_ins: Mapping[str, _StandIn], *, take_defaults: bool
) -> tuple[_Inference, Mapping[tuple[str, int], tuple[str, int]]]:
    """Imports the graph, and then, as long as that tells more, what follows from corrections.

    Returns:
        What is inferred; and for lists, tensors whose shape are the numbers in them.
    """
    straight = StraightGraph(graph_def, take_defaults=take_defaults)
    try:
        inference = _Inference(straight.graph_def, stand_ins)
    except GraphError as error:
        # TensorFlow's words are to be about the graph as it is.
        inference = _Inference(graph_def, {})
        if not stand_ins:
            return inference, {}
        raise GraphError(f"with the values that are fed, {error}") from None
    for _ in range(_MAX_ROUNDS):
        found = straight.corrections(inference.shape_of)
        corrections = {tensor: shape for tensor, shape in found.items() if tensor not in stand_ins}
        if not corrections:
            break
        try:
            inference.correct(corrections)
        except GraphError as error:
            # A size that a step makes less of, say: what is known without it has to do.
            logging.debug("the shapes %s do not fit: %s", list(corrections), error)
            break
    return inference, straight.list_values


def _unused_scopes(graph_def: tf.compat.v1.GraphDef) -> Iterator[str]:
    taken = {node.name.partition("/")[0] for node in graph_def.node}
    return (name for n in itertools.count() if (name := f"tf_placer_{n}") not in taken)


def _element(tensor: tf.Tensor) -> ListElement | None:
    """Says what a list of tensors holds, if TensorFlow has found that out."""
    data = handle_data_util.get_handle_data(tensor)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    [held] = data.shape_and_type
    return ListElement(_sizes(tf.TensorShape(held.shape)), held.dtype)


def _sizes(shape: tf.TensorShape) -> Shape:
    if shape.rank is None:
        return None
    sizes = shape.as_list()
    return tuple(-1 if size is None else size for size in sizes) if None in sizes else tuple(sizes)


def _first_line(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error)
    return text.strip().splitlines()[0] if text.strip() else type(error).__name__


def _tensor_bytes(shapes: Sequence[tuple[int, ...] | None], dtypes: np.ndarray) -> np.ndarray:
    # Few of them are different.
    kinds = list(zip(shapes, dtypes.tolist(), strict=True))
    counts = {(shape, code): _bytes_of(shape, code) for shape, code in set(kinds)}
    return np.array([counts[kind] for kind in kinds], np.int64)


def _bytes_of(shape: tuple[int, ...] | None, code: int) -> int:
    of_element = _element_bytes(code)
    if of_element < 0 or shape is None or any(size < 0 for size in shape):
        return -1
    # No memory holds more, and no 64 bits count it.
    return min(of_element * math.prod(shape), 2**62)


def _element_bytes(code: int) -> int:
    """Bytes of one element of a DataType; -1 where elements have no fixed size."""
    if code in SIZELESS:
        return -1
    return max(1, tf.dtypes.as_dtype(code).size)
