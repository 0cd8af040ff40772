"""Every form a graph comes in, made one: a GraphDef and the step that runs it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import variable_pb2
from tensorflow.core.protobuf import queue_runner_pb2

from graph_passes.annotate import ClearDevices, DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphState
from graph_passes.op_graph import OpGraph
from graph_passes.unknown_sizes import unknown_sizes
from tf_placer.inputs.graph_files import meta_with, read_graph_file
from tf_placer.inputs.initializers import find_initializers
from tf_placer.inputs.step import Step
from tf_placer.inputs.synthetic_feeds import PLACEHOLDERS, complete_feeds

__all__ = ["GivenGraph", "Source", "read_graph", "read_source", "without_devices"]

_KEYS = tf.compat.v1.GraphKeys
_TRAIN_OP = "train_op"
_INITIALIZERS = "initializers"
_DEQUEUES = ("QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2")


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
        return read_graph(read_graph_file(graph))
    raise GraphError(
        f"a graph is a tf.Graph, a GraphDef, a MetaGraphDef or a path, not {type(graph).__name__}"
    )


def without_devices(given: GivenGraph) -> GivenGraph:
    """Clears all devices of a graph, in its MetaGraphDef too; not for a live graph."""
    graph_def = ClearDevices().run(GraphState(given.graph_def)).state.graph_def
    if given.meta_graph is None:
        return GivenGraph(graph_def)
    return GivenGraph(graph_def, meta_with(graph_def, given.meta_graph))


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
            file; or what `read_graph` made of one.
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
    given_graph = graph if isinstance(graph, GivenGraph) else read_graph(graph)
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
    if unknown_sizes(op_graph):
        op_graph = op_graph.with_fed_values(feed_values)
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


def _collections(given: GivenGraph) -> dict[str, list[str]]:
    """Reads what a graph's collections name: "train_op", "initializers" and "queue_runners"."""
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
    return _saved_collections(given.meta_graph)


def _saved_collections(meta_graph: tf.compat.v1.MetaGraphDef) -> dict[str, list[str]]:
    """Reads what the collections of a MetaGraphDef name.

    Raises:
        GraphError: one of them is damaged.
    """
    collections = meta_graph.collection_def

    def parsed(name: str, message_type: Any) -> list[Any]:
        values = collections[name].bytes_list.value if name in collections else ()
        try:
            return [message_type.FromString(data) for data in values]
        except message.DecodeError:
            raise GraphError(
                f"the collection {name!r} of the MetaGraphDef is damaged: it does not hold "
                f"{message_type.DESCRIPTOR.name}s"
            ) from None

    def named(name: str) -> list[str]:
        return list(collections[name].node_list.value) if name in collections else []

    variables = parsed(_KEYS.GLOBAL_VARIABLES, variable_pb2.VariableDef)
    variables += parsed(_KEYS.LOCAL_VARIABLES, variable_pb2.VariableDef)
    initializers = [variable.initializer_name for variable in variables]
    runners = parsed(_KEYS.QUEUE_RUNNERS, queue_runner_pb2.QueueRunnerDef)
    return {
        _TRAIN_OP: named(_TRAIN_OP),
        _INITIALIZERS: initializers + named(_KEYS.TABLE_INITIALIZERS),
        _KEYS.QUEUE_RUNNERS: [runner.queue_name for runner in runners],
    }


def _names(items: Any) -> list[str]:
    """Lists the names of operations and tensors given as one or several objects or names."""
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
    """Refuses initialisers that need a placeholder: only steps are fed."""
    if not initializers:
        return
    needed = graph.restricted(initializers)
    for i in np.flatnonzero(needed.has_type(PLACEHOLDERS) & needed.needed).tolist():
        raise GraphError(
            f"the initializers need the placeholder {graph.names[i]!r}, but only steps are fed: "
            "pass initializers that need none"
        )


def _check_needs_no_runner(graph: OpGraph, collections: Mapping[str, Sequence[str]]) -> None:
    """Refuses a step that needs queue runners: nothing starts the threads that fill a queue."""
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
