"""Every form a graph comes in, made one: a GraphDef and the step that runs it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message, text_format
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import queue_runner_pb2

from graph_passes.annotate import DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphState
from graph_passes.op_graph import OpGraph
from tf_placer.inputs.initializers import find_initializers
from tf_placer.inputs.step import Step
from tf_placer.inputs.synthetic_feeds import PLACEHOLDERS, complete_feeds

__all__ = [
    "GivenGraph",
    "Source",
    "check_output",
    "read_graph",
    "read_source",
    "with_graph",
    "write_graph",
]

_KEYS = tf.compat.v1.GraphKeys
_TRAIN_OP = "train_op"
_INITIALIZERS = "initializers"
_DEQUEUES = ("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2")
_BINARY, _TEXT, _META = ".pb", ".pbtxt", ".meta"
# TensorFlow writes a MetaGraphDef as text under the same ending, if asked to. No binary one starts
# like this: the first letters would be tags of fields that it does not have.
_META_TEXT_STARTS = tuple(
    field.name.encode() for field in tf.compat.v1.MetaGraphDef.DESCRIPTOR.fields
)


@dataclasses.dataclass(frozen=True, eq=False)
class GivenGraph:
    """A graph as it was given.

    Attributes:
        graph_def: the graph.
        meta_graph: the MetaGraphDef that it came in, or None.
        live: the tf.Graph that it came as, or None.
    """

    graph_def: tf.compat.v1.GraphDef
    meta_graph: tf.compat.v1.MetaGraphDef | None = None
    live: tf.Graph | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """A graph and its step.

    Attributes:
        op_graph: the graph in columns, with what the step needs marked.
        step: what a step fetches, feeds and needs initialised.
        live: the tf.Graph that the graph came as, or None.
    """

    op_graph: OpGraph
    step: Step
    live: tf.Graph | None = None

    @property
    def graph_def(self) -> tf.compat.v1.GraphDef:
        """The graph."""
        return self.op_graph.graph_def


def read_graph(graph: Any) -> GivenGraph:
    """Reads a graph in any of its forms.

    Args:
        graph: a tf.Graph, GraphDef or MetaGraphDef, or the path of a `.pb`, `.pbtxt` or `.meta`
            file, the last either binary or text.

    Returns:
        The graph.

    Raises:
        GraphError: it is none of these, or the file cannot be read.
    """
    if isinstance(graph, tf.Graph):
        return GivenGraph(graph.as_graph_def(), live=graph)
    if isinstance(graph, tf.compat.v1.GraphDef):
        return GivenGraph(graph)
    if isinstance(graph, tf.compat.v1.MetaGraphDef):
        return GivenGraph(graph.graph_def, meta_graph=graph)
    if isinstance(graph, str | os.PathLike):
        path = os.fspath(graph)
        return read_graph(_read_file(path, _kind(path)))
    raise GraphError(
        f"a graph is a tf.Graph, a GraphDef, a MetaGraphDef or a path, not {type(graph).__name__}"
    )


def with_graph(given: GivenGraph, graph_def: tf.compat.v1.GraphDef) -> GivenGraph:
    """The same with another GraphDef in it, in its MetaGraphDef too; not for a live graph."""
    if given.meta_graph is None:
        return GivenGraph(graph_def)
    meta_graph = tf.compat.v1.MetaGraphDef()
    meta_graph.CopyFrom(given.meta_graph)
    meta_graph.graph_def.CopyFrom(graph_def)
    return GivenGraph(graph_def, meta_graph)


def read_source(
    graph: Any,
    fetches: Sequence[Any] | Any | None = None,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Sequence[Any] | Any | None = None,
    *,
    seed: int = 0,
) -> Source:
    """Reads a graph and works out its step.

    Args:
        graph: a tf.Graph, GraphDef or MetaGraphDef, or the path of a `.pb`, `.pbtxt` or `.meta`
            file.
        fetches: what a step fetches: operations, tensors and variables, or names of the first two;
            one or several. By default the `train_op` collection.
        feeds: values by placeholder, tensor or name. Placeholders that the step needs and that
            are not given get synthetic values.
        initializers: operations (or names) that initialise everything before the first step; by
            default those of the graph's variables, tables and iterators.
        seed: of synthetic values.

    Returns:
        The graph and its step.

    Raises:
        GraphError: the graph cannot be read or used, a name is not in it, there is nothing to
            fetch, a placeholder cannot be fed, or the step waits for queue runners.
    """
    given_graph = read_graph(graph)
    result = DropDanglingColocation().run(GraphState(given_graph.graph_def))
    graph_def = result.state.graph_def
    collections = _collections(given_graph)
    asked = _names(fetches) if fetches is not None else collections.get(_TRAIN_OP, [])
    fetch_names = list(dict.fromkeys(asked))
    op_graph = OpGraph.from_graph_def(graph_def)
    if not fetch_names:
        raise GraphError(
            "nothing to fetch: pass fetches, or put the training operation into the collection "
            f"{_TRAIN_OP!r}"
        )
    if feeds is not None and not isinstance(feeds, Mapping):
        raise GraphError(f"feeds map placeholders to values, unlike {type(feeds).__name__!r}")
    given = {_tensor_name(key): value for key, value in (feeds or {}).items()}
    op_graph = op_graph.restricted(fetch_names, list(given))
    feed_values = complete_feeds(op_graph, given, seed=seed)
    op_graph = op_graph.restricted(fetch_names, list(feed_values))
    if initializers is not None:
        # Of what makes a value, too, only the operation is run.
        initializer_names = [name.partition(":")[0] for name in _names(initializers)]
        for name in initializer_names:
            if name not in op_graph.index:
                raise GraphError(f"initializer {name!r} is not in the graph")
    else:
        initializer_names = find_initializers(op_graph, collections.get(_INITIALIZERS, ()))
    _check_need_no_feed(op_graph, initializer_names)
    _check_needs_no_runner(op_graph, collections)
    step = Step(tuple(fetch_names), feed_values, tuple(initializer_names))
    return Source(op_graph, step, given_graph.live)


def write_graph(
    path: str | os.PathLike[str],
    graph_def: tf.compat.v1.GraphDef,
    meta_graph: tf.compat.v1.MetaGraphDef | None = None,
) -> None:
    """Writes a graph file, whole or not at all.

    Args:
        path: ends in `.pb`, `.pbtxt` or `.meta`.
        graph_def: the graph.
        meta_graph: for `.meta`, what the graph goes into: everything but the graph is kept.

    Raises:
        GraphError: the path has another ending, or cannot be written.
    """
    path = os.fspath(path)
    kind = _kind(path)
    data: bytes
    if kind == _META:
        empty = meta_graph or tf.compat.v1.MetaGraphDef()
        whole = with_graph(GivenGraph(graph_def, empty), graph_def).meta_graph
        assert whole is not None
        data = whole.SerializeToString()
    elif kind == _TEXT:
        data = text_format.MessageToString(graph_def).encode()
    else:
        data = graph_def.SerializeToString()
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError as error:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise GraphError(f"cannot write the graph {path!r}: {error.strerror}") from error


def check_output(path: str | os.PathLike[str]) -> None:
    """Makes sure, before any work, that a graph can be written to a path.

    Raises:
        GraphError: the ending is not one of a graph file, or the directory does not take files.
    """
    path = os.fspath(path)
    _kind(path)
    directory = os.path.dirname(os.path.abspath(path))
    probe = os.path.join(directory, f".tf_placer.{os.getpid()}.tmp")
    try:
        with open(probe, "wb"):
            pass
        os.unlink(probe)
    except OSError as error:
        raise GraphError(f"cannot write to {directory!r}: {error.strerror}") from error
    if os.path.isdir(path):
        raise GraphError(f"cannot write the graph {path!r}: it is a directory")


def _kind(path: str) -> str:
    kind = os.path.splitext(path)[1]
    if kind not in (_BINARY, _TEXT, _META):
        raise GraphError(
            f"{path!r} is not a graph file: its name must end in {_BINARY}, {_TEXT} or {_META}"
        )
    return kind


def _read_file(path: str, kind: str) -> tf.compat.v1.GraphDef | tf.compat.v1.MetaGraphDef:
    parsed = tf.compat.v1.MetaGraphDef() if kind == _META else tf.compat.v1.GraphDef()
    try:
        with open(path, "rb") as file:
            data = file.read()
        if kind == _TEXT or (kind == _META and data.startswith(_META_TEXT_STARTS)):
            text_format.Parse(data.decode(), parsed)
        else:
            parsed.ParseFromString(data)
    except OSError as error:
        raise GraphError(f"cannot read the graph {path!r}: {error.strerror}") from error
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{path!r} is not a graph, or is cut short: {reason}") from error
    graph_def = parsed.graph_def if kind == _META else parsed
    if not graph_def.node:
        what = "holds no operations" if data else "is empty"
        raise GraphError(f"the graph file {path!r} {what}")
    return parsed


def _collections(given: GivenGraph) -> dict[str, list[str]]:
    """Of a graph, what its collections name: "train_op", "initializers" and "queue_runners"."""
    graph = given.live
    if graph is not None:
        variables = graph.get_collection(_KEYS.GLOBAL_VARIABLES)
        variables += graph.get_collection(_KEYS.LOCAL_VARIABLES)
        initializers = [variable.initializer for variable in variables]
        initializers = [operation for operation in initializers if operation is not None]
        return {
            _TRAIN_OP: _names(graph.get_collection(_TRAIN_OP)),
            _INITIALIZERS: _names(initializers + graph.get_collection(_KEYS.TABLE_INITIALIZERS)),
            _KEYS.QUEUE_RUNNERS: [
                runner.queue.name for runner in graph.get_collection(_KEYS.QUEUE_RUNNERS)
            ],
        }
    if given.meta_graph is None:
        return {}
    collections = given.meta_graph.collection_def
    initializers = []
    for name in (_KEYS.GLOBAL_VARIABLES, _KEYS.LOCAL_VARIABLES):
        for data in collections[name].bytes_list.value if name in collections else ():
            initializers.append(variable_pb2.VariableDef.FromString(data).initializer_name)
    if _KEYS.TABLE_INITIALIZERS in collections:
        initializers += collections[_KEYS.TABLE_INITIALIZERS].node_list.value
    train_op = list(collections[_TRAIN_OP].node_list.value) if _TRAIN_OP in collections else []
    runners = []
    if _KEYS.QUEUE_RUNNERS in collections:
        for data in collections[_KEYS.QUEUE_RUNNERS].bytes_list.value:
            runners.append(queue_runner_pb2.QueueRunnerDef.FromString(data).queue_name)
    return {_TRAIN_OP: train_op, _INITIALIZERS: initializers, _KEYS.QUEUE_RUNNERS: runners}


def _names(items: Any) -> list[str]:
    """Names of operations and tensors given as one or several objects or names."""
    if isinstance(items, str) or not isinstance(items, Sequence):
        items = [items]
    names = []
    for item in items:
        # What a session makes of a variable: its value, not its handle.
        element = getattr(item, "_as_graph_element", None)
        item = item if element is None else element()
        name = item if isinstance(item, str) else getattr(item, "name", None)
        if not isinstance(name, str):
            raise GraphError(f"{item!r} is neither an operation, a tensor nor the name of one")
        names.append(name)
    return names


def _check_need_no_feed(graph: OpGraph, initializers: Sequence[str]) -> None:
    """Only steps are fed, so initialisers must do without."""
    if not initializers:
        return
    needed = graph.restricted(initializers)
    for i in np.flatnonzero(needed.has_type(PLACEHOLDERS) & needed.needed).tolist():
        raise GraphError(
            f"the initializers need the placeholder {graph.names[i]!r}, but only steps are fed: "
            "pass initializers that need none"
        )


def _check_needs_no_runner(graph: OpGraph, collections: Mapping[str, Sequence[str]]) -> None:
    """Nothing starts the threads that would fill a queue."""
    waits = graph.has_type(_DEQUEUES) & graph.needed
    if waits.any() and collections.get(_KEYS.QUEUE_RUNNERS):
        name = graph.names[int(np.flatnonzero(waits)[0])]
        raise GraphError(
            f"{name!r} waits for a queue that queue runners fill, and a search starts none: read "
            "with tf.data, or feed what is taken from the queue"
        )


def _tensor_name(key: Any) -> str:
    (name,) = _names(key)
    return name if ":" in name else f"{name}:0"
