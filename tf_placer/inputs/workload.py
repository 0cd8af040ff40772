"""Reads workloads: a graph in any of TensorFlow's forms, and one step of it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.annotate import ClearDevices, DropDanglingColocation
from graph_passes.errors import GraphError, StepError
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.unknown_sizes import unknown_sizes
from tf_placer.inputs.graph_collections import TRAIN_OP, read_collections
from tf_placer.inputs.graph_files import read_graph_file, replace_meta_graph
from tf_placer.inputs.initial_state import build_initial_state, is_read
from tf_placer.inputs.queue_runners import find_needed_queue_runners
from tf_placer.inputs.saved_model_files import is_saved_model
from tf_placer.inputs.saved_signature import SavedSignature, read_signature
from tf_placer.inputs.session_arguments import flatten_feeds, list_names
from tf_placer.inputs.step import Step
from tf_placer.inputs.synthetic_feeds import complete_feeds

__all__ = ["InputGraph", "Workload", "read_graph", "read_workload", "remove_devices"]


@dataclasses.dataclass(frozen=True, eq=False)
class InputGraph:
    """A graph with the object that it was read from.

    Attributes:
        graph_def: the graph.
        meta_graph: the MetaGraphDef that holds the graph, or None.
        live: the tf.Graph, or None.
        signature: the signatures of a SavedModel, or None.
        path: the file, or None.
    """

    graph_def: tf.compat.v1.GraphDef
    meta_graph: tf.compat.v1.MetaGraphDef | None = None
    live: tf.Graph | None = None
    signature: SavedSignature | None = None
    path: str | None = None

    def read_columns(self, graph_def: tf.compat.v1.GraphDef) -> OpGraph:
        """Reads a transformed version of the graph into columns.

        Raises:
            GraphError: the graph is invalid; the message names the file.
        """
        try:
            return OpGraph.from_graph_def(graph_def)
        except GraphError as error:
            if self.path is None:
                raise
            raise GraphError(f"the graph {self.path!r}: {error}") from error


@dataclasses.dataclass(frozen=True, eq=False)
class Workload:
    """A graph and its step.

    Attributes:
        op_graph: the graph in columns, with the operations of the step marked.
        step: the step.
        live: the original tf.Graph, or None.
        notes: lines for the user.
        is_cleared: whether the operations had devices that were cleared for `run`, which has to
            clear them in the script's own graph, too.
        name: what people call the graph: a file, or a model or function by its name; "" if that is
            not known.
    """

    op_graph: OpGraph
    step: Step
    live: tf.Graph | None = None
    notes: tuple[str, ...] = ()
    is_cleared: bool = False
    name: str = ""

    @property
    def graph_def(self) -> tf.compat.v1.GraphDef:
        """The graph."""
        return self.op_graph.graph_def


def read_graph(graph: Any, signature_key: str | Sequence[str] | None = None) -> InputGraph:
    """Reads a graph in any of its forms.

    Args:
        graph: a tf.Graph, GraphDef or MetaGraphDef, or the path of a `.pb`, `.pbtxt` or `.meta`
            file, the last either binary or text, or of a SavedModel directory.
        signature_key: the name of a SavedModel's signature, or the names of several, which a step
            calls one after another; by default "serving_default", or the only one.

    Returns:
        The graph.

    Raises:
        GraphError: `graph` is none of these or cannot be read, or there is no such signature.
    """
    if isinstance(graph, str | os.PathLike) and is_saved_model(graph):
        saved = read_signature(graph, signature_key)
        return InputGraph(saved.inlined.graph_def, signature=saved, path=saved.directory)
    if signature_key is not None:
        raise StepError("only a SavedModel directory has a signature to choose")
    if isinstance(graph, tf.Graph):
        return InputGraph(graph.as_graph_def(), live=graph)
    if isinstance(graph, tf.compat.v1.GraphDef):
        return InputGraph(graph)
    if isinstance(graph, tf.compat.v1.MetaGraphDef):
        return InputGraph(graph.graph_def, meta_graph=graph)
    if isinstance(graph, str | os.PathLike):
        given = read_graph(read_graph_file(graph))
        return dataclasses.replace(given, path=os.fspath(graph))
    if isinstance(graph, tf.Tensor | tf.Variable):
        raise GraphError(
            "a graph is wanted, not a tensor: pass the tf.Graph, tf.function or Keras model "
            "that computes it"
        )
    raise GraphError(
        "a graph is a tf.Graph, a GraphDef, a MetaGraphDef or a path, not "
        f"{type(graph).__name__}; tf_placer.optimize takes functions made by tf.function and Keras "
        "models, too"
    )


def remove_devices(given: InputGraph) -> InputGraph:
    """Removes all devices from a graph and from its MetaGraphDef or SavedModel.

    A tf.Graph itself stays as it is.
    """
    if given.signature is not None:
        cleared = given.signature.copy_without_devices()
        return InputGraph(cleared.inlined.graph_def, signature=cleared, path=given.path)
    graph_def = ClearDevices().run(given.graph_def)
    if given.meta_graph is None:
        return InputGraph(graph_def, live=given.live, path=given.path)
    return InputGraph(graph_def, replace_meta_graph(graph_def, given.meta_graph), path=given.path)


def read_workload(
    graph: Any,
    fetches: Any = None,
    feed_dict: Mapping[Any, Any] | None = None,
    initializers: Any = None,
    *,
    checkpoint: Any = None,
    seed: int = 0,
    read_values: bool = True,
) -> Workload:
    """Reads a graph and determines its step.

    Args:
        graph: a tf.Graph, GraphDef or MetaGraphDef, or the path of a `.pb`, `.pbtxt` or `.meta`
            file or of a SavedModel directory; or a result of `read_graph`.
        fetches: the fetches of a step, as for `Session.run`, or names of operations and tensors. By
            default the `train_op` collection.
        feed_dict: values by placeholder, tensor or name, as for `Session.run`; for a SavedModel by
            argument name of the signature. Values that only initializers need are fed to the
            initializers. Needed placeholders without a value get synthetic values.
        initializers: operations (or names) that initialize everything before the first step, or a
            tf.compat.v1.train.Scaffold; by default the initializers of the graph's variables,
            tables and iterators.
        checkpoint: the source of initial values for variables: a checkpoint, a directory whose
            latest checkpoint is taken, or a session.
        seed: the seed of synthetic values.
        read_values: whether to read the variables of a SavedModel, which running the step needs.

    Returns:
        The graph and its step.

    Raises:
        GraphError: the graph cannot be read or used, a name is not in it, there is nothing to
            fetch, a placeholder cannot be fed, the step waits for a queue that nothing fills, or
            there is nothing to restore.
    """
    given_graph = graph if isinstance(graph, InputGraph) else read_graph(graph)
    signature = given_graph.signature
    if signature is not None:
        if any(each is not None for each in (fetches, initializers, checkpoint)):
            raise StepError(
                "a SavedModel takes no fetches, initializers or checkpoint: its signature and "
                "its variables say all that"
            )
        fetches, initializers = signature.inlined.fetches, signature.initializers
        signature.check_files()
        feed_dict = signature.build_feeds(feed_dict)
    graph_def = DropDanglingColocation().run(given_graph.graph_def)
    collections = read_collections(given_graph.live, given_graph.meta_graph)
    asked = list_names(fetches) if fetches is not None else collections.train_op
    fetch_names = list(dict.fromkeys(asked))
    given = flatten_feeds(feed_dict)
    op_graph = given_graph.read_columns(graph_def)
    if not fetch_names:
        raise StepError(
            "nothing to fetch: pass fetches, or put the training operation into the collection "
            f"{TRAIN_OP!r}"
        )
    op_graph = op_graph.restrict(fetch_names, list(given))
    feed_values = complete_feeds(op_graph, given, seed=seed)
    op_graph = op_graph.restrict(fetch_names, list(feed_values))
    if unknown_sizes(op_graph):
        op_graph = op_graph.with_fed_values(feed_values)
    runners = find_needed_queue_runners(op_graph, collections.queue_runners)
    initial = build_initial_state(
        op_graph,
        fetch_names,
        feed_values,
        collections=collections,
        runners=runners,
        initializers=initializers,
        checkpoint=checkpoint,
        live=given_graph.live,
        seed=seed,
    )
    step_feeds = {
        name: value
        for name, value in feed_values.items()
        if name not in initial.feeds or is_read(op_graph, name, fetch_names)
    }
    restored = initial.restored
    if signature is not None:
        restored = signature.read_values(_list_variables(op_graph)) if read_values else {}
    step = Step(
        tuple(fetch_names), step_feeds, initial.initializers, initial.feeds, runners, restored
    )
    op_graph = op_graph.restrict(fetch_names, list(step_feeds))
    notes = initial.notes
    if signature is not None and len(signature.names) > 1:
        notes = (f"a step calls {signature.title}, one after another", *notes)
    name = "" if given_graph.path is None else repr(pathlib.PurePath(given_graph.path).name)
    return Workload(op_graph, step, given_graph.live, notes, name=name)


def _list_variables(graph: OpGraph) -> list[str]:
    """Lists the variables that a step needs."""
    return [graph.names[i] for i in np.flatnonzero(graph.needed & graph.has_type(VARIABLES))]
