"""Determines the state before the first step: initializers, their feeds and restored values."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import StepError
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from tf_placer.inputs.graph_collections import Collections
from tf_placer.inputs.initializers import expand_groups, find_initializers, list_operations
from tf_placer.inputs.iterator_handles import find_fed_iterators
from tf_placer.inputs.queue_runners import check_queues_are_filled
from tf_placer.inputs.restored_values import restore_values
from tf_placer.inputs.scaffold import run_init_fn, scaffold_feeds, scaffold_initializers
from tf_placer.inputs.session_arguments import list_names
from tf_placer.inputs.step import QueueRunner
from tf_placer.inputs.synthetic_feeds import PLACEHOLDERS, complete_feeds

__all__ = ["InitialState", "build_initial_state", "is_read"]

_ASSIGNMENTS = frozenset(["Assign", "AssignVariableOp"])
# A PlaceholderWithDefault has a value unless it is fed; the others have none.
_MADE_TO_BE_FED = (*PLACEHOLDERS, "PlaceholderWithDefault")


@dataclasses.dataclass(frozen=True, eq=False)
class InitialState:
    """The state before the first step.

    Attributes:
        initializers: names of the operations that run before the first step.
        feeds: the feeds of the initializers, by tensor name.
        restored: values that variables get after the initializers, by name of the operation.
        notes: lines for the user.
    """

    initializers: tuple[str, ...]
    feeds: Mapping[str, np.ndarray]
    restored: Mapping[str, np.ndarray]
    notes: tuple[str, ...]


def build_initial_state(
    graph: OpGraph,
    fetches: Sequence[str],
    feeds: Mapping[str, np.ndarray],
    *,
    collections: Collections,
    runners: Sequence[QueueRunner],
    initializers: Any,
    checkpoint: Any,
    live: tf.Graph | None,
    seed: int,
) -> InitialState:
    """Determines the state before the first step.

    Args:
        graph: the graph, with the operations of the step marked.
        fetches: the fetches of the step.
        feeds: values by tensor name, including those that only initializers need.
        collections: the collections of the graph.
        runners: the queue runners that the step needs.
        initializers: see `read_workload`.
        checkpoint: see `read_workload`.
        live: the original tf.Graph, or None.
        seed: the seed of synthetic values.

    Returns:
        The state.

    Raises:
        GraphError: a name is not in the graph, an initializer cannot be fed, the step waits for a
            queue that nothing fills, or there is nothing to restore.
    """
    scaffold = None
    if isinstance(initializers, tf.compat.v1.train.Scaffold):
        scaffold, initializers = initializers, scaffold_initializers(initializers, collections)
    if initializers is not None:
        # A tensor among the initializers counts as the operation that computes it.
        given = list_operations(list_names(initializers))
        for name in given:
            if name not in graph.index:
                raise StepError(f"initializer {name!r} is not in the graph")
        names = expand_groups(graph, given)
    else:
        handles = find_fed_iterators(graph.graph_def, feeds)
        needing = _extend_needed(graph, list(handles.values()), runners)
        collected = [*collections.initializers, *collections.local_initializers]
        names = find_initializers(needing, collected)
    check_queues_are_filled(graph, runners, names)
    own_feeds = {} if scaffold is None else scaffold_feeds(scaffold)
    initial_feeds = _choose_initializer_feeds(graph, fetches, names, feeds, own_feeds, seed)
    variables = _find_needed_variables(graph, names, runners)
    restored: dict[str, np.ndarray] = {}
    notes: tuple[str, ...] = ()
    if scaffold is not None and scaffold.init_fn is not None:
        restored |= run_init_fn(scaffold, live, names, initial_feeds, variables)
    if checkpoint is not None:
        found = restore_values(checkpoint, graph, variables, collections.slices)
        restored |= found.values
        notes = (found.describe(),)
    return InitialState(tuple(names), initial_feeds, restored, notes)


def _extend_needed(
    graph: OpGraph, operations: Sequence[str], runners: Sequence[QueueRunner]
) -> OpGraph:
    """Extends the needed part of a graph by other operations and queue runners."""
    names = [*operations, *itertools.chain.from_iterable(each.enqueue for each in runners)]
    if not names:
        return graph
    return dataclasses.replace(graph, needed=graph.needed | graph.restrict(names).needed)


def _find_needed_variables(
    graph: OpGraph, initializers: Sequence[str], runners: Sequence[QueueRunner]
) -> list[str]:
    """Finds the variables that a step, its queue runners or its initializers read."""
    of_step = _extend_needed(graph, (), runners).needed
    needed = _extend_needed(graph, initializers, runners).needed
    names = []
    for i in np.flatnonzero(needed & graph.has_type(VARIABLES)).tolist():
        # Most initializers only assign to their variable, which is no need for its value.
        readers = [j for j in graph.consumers[i] if needed[j]]
        if of_step[i] or any(graph.type_of(j) not in _ASSIGNMENTS for j in readers):
            names.append(graph.names[i])
    return names


def _choose_initializer_feeds(
    graph: OpGraph,
    fetches: Sequence[str],
    initializers: Sequence[str],
    feeds: Mapping[str, np.ndarray],
    own_feeds: Mapping[str, Any],
    seed: int,
) -> dict[str, np.ndarray]:
    """Selects the feeds of the initializers, and completes them with synthetic values.

    Args:
        graph: the graph, with the operations of the step marked.
        fetches: the fetches of the step.
        initializers: names of the operations that run before the first step.
        feeds: all given feeds, by tensor name.
        own_feeds: feeds of the initializers alone.
        seed: the seed of synthetic values.

    Returns:
        The feeds that initializers read: placeholders, and tensors that no step reads.

    Raises:
        GraphError: no value can be made up for a placeholder that the initializers need.
    """
    if not initializers:
        return {}
    is_made_to_be_fed = graph.has_type(_MADE_TO_BE_FED)
    candidates: dict[str, Any] = {
        name: value
        for name, value in feeds.items()
        if is_made_to_be_fed[graph.tensor_producer[graph.tensor_index(name)]]
        or not is_read(graph, name, fetches)
    }
    candidates.update(own_feeds)
    needing = graph.restrict(initializers, list(candidates))
    given = {name: value for name, value in candidates.items() if is_read(needing, name)}
    for i in np.flatnonzero(needing.has_type(PLACEHOLDERS) & needing.needed).tolist():
        if tf.dtypes.as_dtype(int(needing.tensor_dtypes[needing.output_start[i]])) == tf.string:
            raise StepError(
                f"the initializers need the placeholder {graph.names[i]!r}, and its strings may "
                "be names of files: pass its value in feed_dict (--feeds)"
            )
    return complete_feeds(needing, given, seed=seed)


def is_read(graph: OpGraph, name: str, fetches: Sequence[str] = ()) -> bool:
    """Says whether a needed operation reads a tensor, or the tensor is fetched."""
    tensor = graph.tensor_index(name)
    readers = graph.edge_consumer[graph.edge_tensor == tensor]
    fetched = {graph.tensor_index(fetch) for fetch in fetches if ":" in fetch}
    return bool(graph.needed[readers].any()) or tensor in fetched
