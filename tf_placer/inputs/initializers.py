"""What has to run before the first step of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["find_initializers"]

_ASSIGNMENTS = frozenset(["Assign", "AssignVariableOp"])
_INITIALIZERS = ("InitializeTable", "LookupTableImport", "MakeIterator", "MultiDeviceIteratorInit")
_TABLES_AND_ITERATORS = frozenset(
    [
        *("HashTable", "HashTableV2", "AnonymousHashTable"),
        *("MutableHashTable", "MutableHashTableV2", "MutableHashTableOfTensors"),
        *("MutableHashTableOfTensorsV2", "MutableDenseHashTable", "MutableDenseHashTableV2"),
        *("Iterator", "IteratorV2", "MultiDeviceIterator"),
    ]
)
# Operations that hand on a handle as it is.
_HANDS_ON = frozenset(["Identity", "RefIdentity"])
# They hand it on to what runs under a condition, or any number of times.
_INTO_CONTROL_FLOW = frozenset(["Switch", "RefSwitch", "Enter", "RefEnter"])


def find_initializers(graph: OpGraph, collected: Iterable[str] = ()) -> list[str]:
    """Finds the operations that initialise the state that a step needs.

    What a step runs under a condition or in a loop, such as an assignment in a v1 conditional, is
    no initialiser.

    Args:
        graph: the graph, with what the step needs marked.
        collected: names that the graph's collections give; the graph may lack some of them.

    Returns:
        The collected operations that the graph has, and for each variable, table and iterator that
        the step or an initialiser needs and that none of them initialises, the operation that
        does: its assignment by TensorFlow's naming ("w/Assign"), or its initialiser.

    Raises:
        GraphError: a needed variable has nothing that initialises it.
    """
    names = [name for name in dict.fromkeys(collected) if name in graph.index]
    states = _states(graph)
    settled = {states[graph.index[name]] for name in names}
    by_state: dict[int, list[int]] = {}
    for i, state in states.items():
        if not _is_in_control_flow(graph, i):
            by_state.setdefault(state, []).append(i)
    is_state = graph.has_type(VARIABLES | _TABLES_AND_ITERATORS)
    needed = graph.needed
    # What an initialiser reads has to be initialised, too.
    while missing := sorted(set(np.flatnonzero(is_state & needed).tolist()) - settled):
        settled.update(missing)
        found = [_initializer(graph, state, by_state.get(state, [])) for state in missing]
        names += [name for name in found if name is not None]
        if names:
            needed = needed | graph.restricted(names).needed
    return list(dict.fromkeys(names))


def _initializer(graph: OpGraph, state: int, setters: Sequence[int]) -> str | None:
    """Chooses the operation that initialises a variable, table or iterator; None if none need.

    Raises:
        GraphError: a variable has none.
    """
    if graph.type_of(state) not in VARIABLES:
        # Mutable tables are usable from the start: what imports into them restores checkpoints.
        if graph.type_of(state).startswith("Mutable") or not setters:
            return None
        # An iterator that can be initialised with several data sets gets the first.
        return graph.names[setters[0]]
    assigns = [i for i in setters if graph.type_of(i) in _ASSIGNMENTS]
    name = f"{graph.names[state]}/Assign"
    for i in assigns:
        if graph.names[i] == name:
            return name
    for i in assigns:
        if not graph.needed[i]:
            return graph.names[i]
    raise GraphError(f"nothing initialises the variable {graph.names[state]!r}: pass initializers")


def _states(graph: OpGraph) -> dict[int, int]:
    """Finds by assignment or initialiser the variable, table or iterator that it sets."""
    states = {}
    for i in range(graph.num_operations):
        state = _handle_of(graph, i)
        while state >= 0 and graph.type_of(state) in _HANDS_ON | _INTO_CONTROL_FLOW:
            state = graph.producers[state][0]
        if state >= 0 and _holds_state(graph.type_of(state)):
            states[i] = state
    return states


def _is_in_control_flow(graph: OpGraph, setter: int) -> bool:
    """Says whether what an operation sets reaches it through a switch or into a loop."""
    i = _handle_of(graph, setter)
    while graph.type_of(i) in _HANDS_ON:
        i = graph.producers[i][0]
    return graph.type_of(i) in _INTO_CONTROL_FLOW


def _handle_of(graph: OpGraph, i: int) -> int:
    """Finds the operation that makes the handle of what an operation sets; -1 if it sets none."""
    op_type = graph.type_of(i)
    if op_type not in _ASSIGNMENTS and not op_type.startswith(_INITIALIZERS):
        return -1
    # The handle is the first input, but an iterator's, which is the second.
    number = 1 if op_type in ("MakeIterator", "MultiDeviceIteratorInit") else 0
    producers = graph.producers[i]
    return producers[number] if len(producers) > number else -1


def _holds_state(op_type: str) -> bool:
    return op_type in VARIABLES or op_type in _TABLES_AND_ITERATORS
