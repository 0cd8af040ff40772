"""What the collections of a graph say: how to train it, and what has to be there before."""

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
from tf_placer.inputs.session_arguments import names_of
from tf_placer.inputs.step import QueueRunner

__all__ = ["TRAIN_OP", "Collections", "VariableSlice", "read_collections"]

_KEYS = tf.compat.v1.GraphKeys
#: The collection that TensorFlow's v1 optimizers put their updates into.
TRAIN_OP = "train_op"


@dataclasses.dataclass(frozen=True)
class VariableSlice:
    """Which part of a partitioned variable one of its variables is.

    Attributes:
        full_name: name of the whole in checkpoints.
        full_shape: its shape.
        offset: where the part begins, by dimension.
        shape: the shape of the part.
    """

    full_name: str
    full_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def index(self) -> tuple[slice, ...]:
        """The part as an index into the whole."""
        sizes = zip(self.offset, self.shape, strict=True)
        return tuple(slice(start, start + size) for start, size in sizes)


@dataclasses.dataclass(frozen=True)
class Collections:
    """What the collections of a graph say, by names.

    Attributes:
        train_op: what a step of the training runs.
        initializers: of the global variables.
        local_initializers: of the local variables and the tables.
        queue_runners: what fills queues.
        slices: by name of the variable's operation, for parts of partitioned variables.
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
        graph: the graph, if it is a live one.
        meta_graph: else the MetaGraphDef that it came in, if any.

    Returns:
        What they say; nothing for a graph that has none.

    Raises:
        GraphError: a collection is damaged.
    """
    if graph is not None:
        # Elsewhere a queue is not called what its operation is.
        with graph.as_default():
            return _of_graph(graph)
    if meta_graph is not None:
        return _of_meta_graph(meta_graph)
    return Collections()


def _of_graph(graph: tf.Graph) -> Collections:
    in_order: dict[str, list[str]] = {}
    slices: dict[str, VariableSlice] = {}
    for key in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        in_order[key] = []
        for variable in graph.get_collection(key):
            if variable.initializer is not None:
                in_order[key] += names_of(variable.initializer)
            with contextlib.suppress(AttributeError, NotImplementedError, TypeError):
                slices.update(_slice(variable.op.name, variable._get_save_slice_info()))
    runners = []
    for runner in graph.get_collection(_KEYS.QUEUE_RUNNERS):
        # Some call functions of Python, and have no such form: nothing can stand in for them.
        with contextlib.suppress(NotImplementedError):
            runners.append(_queue_runner(runner.to_proto()))
    return Collections(
        tuple(names_of(graph.get_collection(TRAIN_OP))),
        tuple(in_order[_KEYS.GLOBAL_VARIABLES]),
        (
            *in_order[_KEYS.LOCAL_VARIABLES],
            *names_of(graph.get_collection(_KEYS.TABLE_INITIALIZERS)),
        ),
        tuple(runners),
        slices,
    )


def _of_meta_graph(meta_graph: tf.compat.v1.MetaGraphDef) -> Collections:
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
                slices.update(_slice(name, variable.save_slice_info_def))
    return Collections(
        tuple(nodes(TRAIN_OP)),
        tuple(in_order[_KEYS.GLOBAL_VARIABLES]),
        (*in_order[_KEYS.LOCAL_VARIABLES], *nodes(_KEYS.TABLE_INITIALIZERS)),
        tuple(
            _queue_runner(runner)
            for runner in protos(_KEYS.QUEUE_RUNNERS, queue_runner_pb2.QueueRunnerDef)
        ),
        slices,
    )


def _queue_runner(proto: queue_runner_pb2.QueueRunnerDef) -> QueueRunner:
    return QueueRunner(
        proto.queue_name,
        tuple(proto.enqueue_op_name),
        proto.close_op_name,
        proto.cancel_op_name,
        tuple(proto.queue_closed_exception_types),
    )


def _slice(name: str, info: Any) -> Iterator[tuple[str, VariableSlice]]:
    """Yields a slice by the variable's name, if it is one."""
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
