"""Reads the collections of a graph: the training operation, initializers and queue runners."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import queue_runner_pb2

from graph_passes.errors import GraphError
from tf_placer.inputs.session_arguments import list_names
from tf_placer.inputs.step import QueueRunner

__all__ = ["TRAIN_OP", "Collections", "VariableSlice", "read_collections"]

_KEYS = tf.compat.v1.GraphKeys
#: The collection to which TensorFlow's v1 optimizers add their updates.
TRAIN_OP = "train_op"


@dataclasses.dataclass(frozen=True)
class VariableSlice:
    """The position of one part of a partitioned variable.

    Attributes:
        full_name: the name of the partitioned variable in checkpoints.
        full_shape: the shape of the partitioned variable.
        offset: the start of the part in each dimension.
        shape: the shape of the part.
    """

    full_name: str
    full_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def index(self) -> tuple[slice, ...]:
        """The part as an index into the partitioned variable."""
        sizes = zip(self.offset, self.shape, strict=True)
        return tuple(slice(start, start + size) for start, size in sizes)


@dataclasses.dataclass(frozen=True)
class Collections:
    """The collections of a graph, as names.

    Attributes:
        train_op: the operations of a training step.
        initializers: the initializers of global variables.
        local_initializers: the initializers of local variables and tables.
        queue_runners: the queue runners.
        slices: the parts of partitioned variables, by name of the variable's operation.
    """

    train_op: tuple[str, ...] = ()
    initializers: tuple[str, ...] = ()
    local_initializers: tuple[str, ...] = ()
    queue_runners: tuple[QueueRunner, ...] = ()
    slices: Mapping[str, VariableSlice] = dataclasses.field(default_factory=dict)


def read_collections(
    graph: tf.Graph | None, meta_graph: tf.compat.v1.MetaGraphDef | None
) -> Collections:
    """Reads the collections of a graph.

    Args:
        graph: the tf.Graph, or None.
        meta_graph: the MetaGraphDef if there is no tf.Graph, or None.

    Returns:
        The collections, which are empty for a plain GraphDef.

    Raises:
        GraphError: a collection is damaged.
    """
    if graph is not None:
        # The name of a queue equals that of its operation only while its graph is the default one.
        with graph.as_default():
            return _read_graph_collections(graph)
    if meta_graph is not None:
        return _read_meta_graph_collections(meta_graph)
    return Collections()


def _read_graph_collections(graph: tf.Graph) -> Collections:
    in_order: dict[str, list[str]] = {}
    slices: dict[str, VariableSlice] = {}
    for key in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        in_order[key] = []
        for variable in graph.get_collection(key):
            if variable.initializer is not None:
                in_order[key] += list_names(variable.initializer)
            with contextlib.suppress(AttributeError, NotImplementedError, TypeError):
                slices.update(_read_slice(variable.op.name, variable._get_save_slice_info()))
    runners = []
    for runner in graph.get_collection(_KEYS.QUEUE_RUNNERS):
        # A runner that calls a Python function has no proto, and cannot run in another process.
        with contextlib.suppress(NotImplementedError):
            runners.append(_read_queue_runner(runner.to_proto()))
    return Collections(
        tuple(list_names(graph.get_collection(TRAIN_OP))),
        tuple(in_order[_KEYS.GLOBAL_VARIABLES]),
        (
            *in_order[_KEYS.LOCAL_VARIABLES],
            *list_names(graph.get_collection(_KEYS.TABLE_INITIALIZERS)),
        ),
        tuple(runners),
        slices,
    )


def _read_meta_graph_collections(meta_graph: tf.compat.v1.MetaGraphDef) -> Collections:
    collections = meta_graph.collection_def

    def nodes(key: str) -> Iterable[str]:
        return collections[key].node_list.value if key in collections else ()

    def protos(key: str, message_type: Any) -> list[Any]:
        values = collections[key].bytes_list.value if key in collections else ()
        try:
            return [message_type.FromString(data) for data in values]
        except message.DecodeError:
            raise GraphError(
                f"the collection {key!r} of the MetaGraphDef is damaged: it does not hold "
                f"{message_type.DESCRIPTOR.name}s"
            ) from None

    in_order: dict[str, list[str]] = {}
    slices: dict[str, VariableSlice] = {}
    for key in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        in_order[key] = []
        for variable in protos(key, variable_pb2.VariableDef):
            in_order[key].append(variable.initializer_name)
            if variable.HasField("save_slice_info_def"):
                name = variable.variable_name.split(":")[0]
                slices.update(_read_slice(name, variable.save_slice_info_def))
    return Collections(
        tuple(nodes(TRAIN_OP)),
        tuple(in_order[_KEYS.GLOBAL_VARIABLES]),
        (*in_order[_KEYS.LOCAL_VARIABLES], *nodes(_KEYS.TABLE_INITIALIZERS)),
        tuple(
            _read_queue_runner(runner)
            for runner in protos(_KEYS.QUEUE_RUNNERS, queue_runner_pb2.QueueRunnerDef)
        ),
        slices,
    )


def _read_queue_runner(proto: queue_runner_pb2.QueueRunnerDef) -> QueueRunner:
    return QueueRunner(
        proto.queue_name,
        tuple(proto.enqueue_op_name),
        proto.close_op_name,
        proto.cancel_op_name,
        tuple(proto.queue_closed_exception_types),
    )


def _read_slice(name: str, info: Any) -> Iterator[tuple[str, VariableSlice]]:
    """Yields the name and the slice of a variable if it is part of a partitioned one."""
    if info is not None and info.full_name:
        yield (
            name,
            VariableSlice(
                info.full_name,
                *(
                    tuple(int(size) for size in sizes)
                    for sizes in (info.full_shape, info.var_offset, info.var_shape)
                ),
            ),
        )
