"""Every form a graph comes in, made one: a GraphDef and the step that runs it."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.annotate import ClearDevices, DropDanglingColocation
from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphState
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.unknown_sizes import unknown_sizes
from tf_placer.inputs.graph_collections import TRAIN_OP, read_collections
from tf_placer.inputs.graph_files import meta_with, read_graph_file
from tf_placer.inputs.initializers import find_initializers
from tf_placer.inputs.iterator_handles import fed_iterators
from tf_placer.inputs.queue_runners import check_queues_are_filled, needed_queue_runners
from tf_placer.inputs.restoring import restored_values
from tf_placer.inputs.scaffold import scaffold_feeds, scaffold_initializers, values_of_init_fn
from tf_placer.inputs.session_arguments import feeds_by_name, names_of
from tf_placer.inputs.step import QueueRunner, Step
from tf_placer.inputs.synthetic_feeds import PLACEHOLDERS, complete_feeds

__all__ = ["GivenGraph", "Source", "read_graph", "read_source", "without_devices"]

_ASSIGNMENTS = frozenset(["Assign", "AssignVariableOp"])
# What has no value of its own, or one only where nobody feeds another.
_MADE_TO_BE_FED = (*PLACEHOLDERS, "PlaceholderWithDefault")


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
        notes: what people should know about it, a line each.
    """

    op_graph: OpGraph
    step: Step
    live: tf.Graph | None = None
    notes: tuple[str, ...] = ()

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
    fetches: Any = None,
    feeds: Mapping[Any, Any] | None = None,
    initializers: Any = None,
    *,
    restore_from: Any = None,
    seed: int = 0,
) -> Source:
    """Reads a graph and works out its step.

    Args:
        graph: a tf.Graph, GraphDef or MetaGraphDef, or the path of a `.pb`, `.pbtxt` or `.meta`
            file; or what `read_graph` made of one.
        fetches: what a step fetches: whatever `Session.run` takes, or names of operations and
            tensors. By default the `train_op` collection.
        feeds: values by placeholder, tensor or name, as `Session.run` takes them. Those that only
            initialisers need are fed to these. Placeholders that are needed and not given get
            synthetic values.
        initializers: operations (or names) that initialise everything before the first step, or a
            tf.compat.v1.train.Scaffold; by default those of the graph's variables, tables and
            iterators.
        restore_from: a checkpoint, a directory whose latest checkpoint is taken, or a session: the
            values that variables begin with.
        seed: of synthetic values.

    Returns:
        The graph and its step.

    Raises:
        GraphError: the graph cannot be read or used, a name is not in it, there is nothing to
            fetch, a placeholder cannot be fed, the step waits for a queue that nothing fills, or
            there is nothing to restore.
    """
    given_graph = graph if isinstance(graph, GivenGraph) else read_graph(graph)
    result = DropDanglingColocation().run(GraphState(given_graph.graph_def))
    graph_def = result.state.graph_def
    collections = read_collections(given_graph.live, given_graph.meta_graph)
    asked = names_of(fetches) if fetches is not None else collections.train_op
    fetch_names = list(dict.fromkeys(asked))
    given = feeds_by_name(feeds)
    op_graph = OpGraph.from_graph_def(graph_def)
    if not fetch_names:
        raise GraphError(
            "nothing to fetch: pass fetches, or put the training operation into the collection "
            f"{TRAIN_OP!r}"
        )
    op_graph = op_graph.restricted(fetch_names, list(given))
    feed_values = complete_feeds(op_graph, given, seed=seed)
    op_graph = op_graph.restricted(fetch_names, list(feed_values))
    if unknown_sizes(op_graph):
        op_graph = op_graph.with_fed_values(feed_values)
    runners = needed_queue_runners(op_graph, collections.queue_runners)
    scaffold = None
    if isinstance(initializers, tf.compat.v1.train.Scaffold):
        scaffold, initializers = initializers, scaffold_initializers(initializers, collections)
    if initializers is not None:
        # Of what makes a value, too, only the operation is run.
        initializer_names = [name.partition(":")[0] for name in names_of(initializers)]
        for name in initializer_names:
            if name not in op_graph.index:
                raise GraphError(f"initializer {name!r} is not in the graph")
    else:
        handles = fed_iterators(graph_def, feed_values)
        needing = _with(op_graph, list(handles.values()), runners)
        collected = [*collections.initializers, *collections.local_initializers]
        initializer_names = find_initializers(needing, collected)
    check_queues_are_filled(op_graph, runners, initializer_names)
    initializer_feeds = _initializer_feeds(
        op_graph,
        fetch_names,
        initializer_names,
        feed_values,
        {} if scaffold is None else scaffold_feeds(scaffold),
        seed,
    )
    step_feeds = {
        name: value
        for name, value in feed_values.items()
        if name not in initializer_feeds or _is_read(op_graph, name, fetch_names)
    }
    op_graph = op_graph.restricted(fetch_names, list(step_feeds))
    notes: tuple[str, ...] = ()
    restored: dict[str, np.ndarray] = {}
    variables = _needed_variables(op_graph, initializer_names, runners)
    if scaffold is not None and scaffold.init_fn is not None:
        restored |= values_of_init_fn(
            scaffold, given_graph.live, initializer_names, initializer_feeds, variables
        )
    if restore_from is not None:
        found = restored_values(restore_from, op_graph, variables, collections.slices)
        restored |= found.values
        notes = (found.description(),)
    step = Step(
        tuple(fetch_names),
        step_feeds,
        tuple(initializer_names),
        initializer_feeds,
        runners,
        restored,
    )
    return Source(op_graph, step, given_graph.live, notes)


def _with(graph: OpGraph, operations: Sequence[str], runners: Sequence[QueueRunner]) -> OpGraph:
    """Marks as needed, beside what a step needs, what other operations and queue runners need."""
    names = [*operations, *itertools.chain.from_iterable(each.enqueue for each in runners)]
    if not names:
        return graph
    return dataclasses.replace(graph, needed=graph.needed | graph.restricted(names).needed)


def _needed_variables(
    graph: OpGraph, initializers: Sequence[str], runners: Sequence[QueueRunner]
) -> list[str]:
    """Finds the variables that a step needs, its queue runners, or what initialisers make."""
    of_step = _with(graph, (), runners).needed
    needed = _with(graph, initializers, runners).needed
    names = []
    for i in np.flatnonzero(needed & graph.has_type(VARIABLES)).tolist():
        # Most initialisers only set their variable, whoever needs it.
        readers = [j for j in graph.consumers[i] if needed[j]]
        if of_step[i] or any(graph.type_of(j) not in _ASSIGNMENTS for j in readers):
            names.append(graph.names[i])
    return names


def _initializer_feeds(
    graph: OpGraph,
    fetches: Sequence[str],
    initializers: Sequence[str],
    feeds: Mapping[str, np.ndarray],
    own_feeds: Mapping[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """Chooses what is fed when the initialisers run, and makes up what is missing.

    Args:
        graph: the graph, with what the step needs marked.
        fetches: what the step fetches.
        initializers: what runs before the first step.
        feeds: what is fed, by tensor name.
        own_feeds: values that only the initialisers are fed.
        seed: of synthetic values.

    Returns:
        Of the feeds those that initialisers read: placeholders, and what no step reads.

    Raises:
        GraphError: no value can be made up for a placeholder that they need.
    """
    if not initializers:
        return {}
    is_made_to_be_fed = graph.has_type(_MADE_TO_BE_FED)
    candidates: dict[str, Any] = {
        name: value
        for name, value in feeds.items()
        if is_made_to_be_fed[graph.tensor_producer[graph.tensor_index(name)]]
        or not _is_read(graph, name, fetches)
    }
    candidates.update(own_feeds)
    needing = graph.restricted(initializers, list(candidates))
    given = {name: value for name, value in candidates.items() if _is_read(needing, name)}
    for i in np.flatnonzero(needing.has_type(PLACEHOLDERS) & needing.needed).tolist():
        if tf.dtypes.as_dtype(int(needing.tensor_dtypes[needing.output_start[i]])) == tf.string:
            raise GraphError(
                f"the initializers need the placeholder {graph.names[i]!r}, and its strings may "
                "be names of files: pass its value in feeds"
            )
    return complete_feeds(needing, given, seed=seed)


def _is_read(graph: OpGraph, name: str, fetches: Sequence[str] = ()) -> bool:
    """Says whether what is needed reads a tensor that is fed, or it is itself fetched."""
    tensor = graph.tensor_index(name)
    readers = graph.edge_consumer[graph.edge_tensor == tensor]
    fetched = {graph.tensor_index(fetch) for fetch in fetches if ":" in fetch}
    return bool(graph.needed[readers].any()) or tensor in fetched
