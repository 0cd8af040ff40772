"""The tensors of a graph: their types and shapes, as far as TensorFlow can infer them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from absl import logging
from tensorflow.core.framework import types_pb2

from graph_passes.errors import GraphError
from graph_passes.op_types import VARIABLES
from graph_passes.straight_graph import Shape, StraightGraph

__all__ = ["SIZELESS", "Tensors", "read_tensors"]

# DataType values of reference tensors are those of their base type plus this.
_REF_OFFSET = 100
#: DataTypes whose elements have no bytes of their own: handles, and texts of unknown length.
SIZELESS = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
# What a graph computes shapes from is small.
_LARGEST_SHAPE_VALUE = 1024
# What is known of one loop's results may tell the shapes in the next loop.
_MAX_ROUNDS = 12


@dataclasses.dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of a graph, numbered operation by operation.

    Attributes:
        output_start: int32 [num_operations + 1], the first tensor of each operation.
        dtypes: int32 [num_tensors], DataType of each tensor, references as their base type.
        shapes: per tensor its shape, -1 for an unknown dimension; None for unknown rank.
        bytes: int64 [num_tensors], -1 where the shape is not known or the type has no size.
        is_reference: bool [num_tensors].
    """

    output_start: np.ndarray
    dtypes: np.ndarray
    shapes: tuple[Shape, ...]
    bytes: np.ndarray
    is_reference: np.ndarray


def read_tensors(
    graph_def: tf.compat.v1.GraphDef, fed: Mapping[str, np.ndarray] | None = None
) -> Tensors:
    """Has TensorFlow import the graph and infer the shapes of its tensors.

    Shapes are those of the first iteration of a loop, but for sizes that the loop changes, which
    are unknown. So are sizes that differ between the branches of a conditional. What selects from a
    tensor counts as selecting all of it.

    Args:
        graph_def: the graph.
        fed: values by tensor name ("x:0"), which shapes follow from.

    Raises:
        GraphError: TensorFlow refuses the graph, or refuses it with these values.
    """
    stand_ins = _stand_ins(graph_def, fed or {})
    graph = _inferred(graph_def, stand_ins)
    operations = {operation.name: operation for operation in graph.get_operations()}
    outputs = [operations[node.name].outputs for node in graph_def.node]
    output_start = np.zeros(len(outputs) + 1, np.int32)
    np.cumsum([len(tensors) for tensors in outputs], out=output_start[1:])
    tensors = list(itertools.chain.from_iterable(outputs))
    codes = np.array([tensor.dtype.as_datatype_enum for tensor in tensors], np.int32)
    is_reference = codes > _REF_OFFSET
    codes = np.where(is_reference, codes - _REF_OFFSET, codes)
    shapes = [_sizes(tensor.shape) for tensor in tensors]
    if stand_ins:
        for i, tensor in enumerate(tensors):
            if tensor.name in stand_ins:
                shapes[i] = stand_ins[tensor.name].shape
    return Tensors(output_start, codes, tuple(shapes), _tensor_bytes(shapes, codes), is_reference)


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


def _inferred(graph_def: tf.compat.v1.GraphDef, stand_ins: dict[str, _StandIn]) -> tf.Graph:
    """Imports the graph, and again as long as that tells more shapes; adds to the stand-ins."""
    straight = StraightGraph(graph_def)
    try:
        graph = _import(straight.graph_def, stand_ins)
    except GraphError as error:
        # TensorFlow's words are to be about the graph as it is.
        graph = _import(graph_def, {})
        if not stand_ins:
            return graph
        raise GraphError(f"with the values that are fed, {error}") from None

    def shape_of(name: str, port: int) -> Shape:
        tensor = f"{name}:{port}"
        known = stand_ins.get(tensor)
        return _sizes(graph.get_tensor_by_name(tensor).shape) if known is None else known.shape

    fed = frozenset(stand_ins)
    for _ in range(_MAX_ROUNDS):
        corrections = {
            name: _StandIn(graph.get_tensor_by_name(name).dtype.base_dtype, shape)
            for name, shape in straight.corrections(shape_of).items()
            if name not in fed
        }
        if not corrections:
            break
        try:
            graph = _import(straight.graph_def, stand_ins | corrections)
        except GraphError as error:
            # A size that a step makes less of, say: what is known without it has to do.
            logging.debug("the shapes %s do not fit: %s", list(corrections), error)
            break
        stand_ins |= corrections
    return graph


def _import(graph_def: tf.compat.v1.GraphDef, stand_ins: Mapping[str, _StandIn]) -> tf.Graph:
    graph = tf.Graph()
    try:
        with graph.as_default():
            with tf.name_scope(_unused_scope(graph_def)):
                read_instead = {name: stand_in.make() for name, stand_in in stand_ins.items()}
            tf.graph_util.import_graph_def(graph_def, name="", input_map=read_instead)
    except (ValueError, tf.errors.OpError) as error:
        raise GraphError(f"TensorFlow refuses the graph: {_first_line(error)}") from error
    return graph


def _unused_scope(graph_def: tf.compat.v1.GraphDef) -> str:
    taken = {node.name.partition("/")[0] for node in graph_def.node}
    return next(name for n in itertools.count() if (name := f"stand_in_{n}") not in taken)


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
