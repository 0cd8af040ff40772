"""The order in which the initializers of a graph have to run."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import tensorflow as tf

__all__ = ["order_initializers"]


def order_initializers(initializers: Sequence[tf.Operation]) -> list[list[tf.Operation]]:
    """Sorts initializers so that each runs after those whose state it reads.

    An example is a variable whose initial value is a multiple of another one. TensorFlow only runs
    the initializers of all global variables before those of all local ones.

    Args:
        initializers: assignments and other operations of one graph, each once.

    Returns:
        Lists of operations that can run together, in the order to run them; nearly always a single
        list. Initializers that depend on each other are in the same list.
    """
    sets = {each: _find_state(each) for each in initializers if each.inputs}
    by_state: dict[tf.Operation, list[tf.Operation]] = {}
    for each, state in sets.items():
        by_state.setdefault(state, []).append(each)
    graph = nx.DiGraph()
    graph.add_nodes_from(initializers)
    for each in initializers:
        for state in _find_read_states(each, by_state) - {sets.get(each)}:
            graph.add_edges_from((first, each) for first in by_state[state])
    together = nx.condensation(graph)
    return [
        [each for number in numbers for each in together.nodes[number]["members"]]
        for numbers in nx.topological_generations(together)
    ]


def _find_state(initializer: tf.Operation) -> tf.Operation:
    """Finds the variable, table or iterator that an initializer sets.

    Its other inputs are values. The first input of `MakeIterator` is a data set.
    """
    inputs = list(initializer.inputs)
    handles = (each for each in inputs if each.dtype == tf.resource or each.dtype._is_ref_dtype)
    return next(handles, inputs[0]).op


def _find_read_states(
    initializer: tf.Operation, states: dict[tf.Operation, list[tf.Operation]]
) -> set[tf.Operation]:
    """Finds the states that an initializer reads, directly or through other operations."""
    seen, waiting, found = {initializer}, [initializer], set()
    while waiting:
        operation = waiting.pop()
        if operation in states and operation is not initializer:
            # A state operation has no dependencies of its own.
            found.add(operation)
            continue
        for before in (*(tensor.op for tensor in operation.inputs), *operation.control_inputs):
            if before not in seen:
                seen.add(before)
                waiting.append(before)
    return found
