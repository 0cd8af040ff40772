"""The order in which initializers have to run."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import tensorflow as tf

__all__ = ["initializer_order"]


def initializer_order(initializers: Sequence[tf.Operation]) -> list[list[tf.Operation]]:
    """Sorts initializers by what they read, as of a variable that begins as a multiple of another.

    TensorFlow runs all global variables' and then all local variables'. This is finer.

    Args:
        initializers: assignments and other operations of one graph, each once.

    Returns:
        Sets of operations that can run at once, one after the other; nearly always a single one.
        Those that need each other are all in one.
    """
    sets = {each: _state(each) for each in initializers if each.inputs}
    by_state: dict[tf.Operation, list[tf.Operation]] = {}
    for each, state in sets.items():
        by_state.setdefault(state, []).append(each)
    graph = nx.DiGraph()
    graph.add_nodes_from(initializers)
    for each in initializers:
        for state in _read(each, by_state) - {sets.get(each)}:
            graph.add_edges_from((first, each) for first in by_state[state])
    together = nx.condensation(graph)
    return [
        [each for number in numbers for each in together.nodes[number]["members"]]
        for numbers in nx.topological_generations(together)
    ]


def _state(initializer: tf.Operation) -> tf.Operation:
    """Finds the variable, table or iterator that an initializer sets.

    Its other inputs are values; that of `MakeIterator` is a data set, which comes first.
    """
    inputs = list(initializer.inputs)
    handles = (each for each in inputs if each.dtype == tf.resource or each.dtype._is_ref_dtype)
    return next(handles, inputs[0]).op


def _read(
    initializer: tf.Operation, states: dict[tf.Operation, list[tf.Operation]]
) -> set[tf.Operation]:
    """Finds the states that an initializer reads, however indirectly."""
    seen, waiting, found = {initializer}, [initializer], set()
    while waiting:
        operation = waiting.pop()
        if operation in states and operation is not initializer:
            # The operation that creates a variable depends on nothing.
            found.add(operation)
            continue
        for before in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return found
