"""What has to run before the first step of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.errors import GraphError
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["find_initializers"]

_ASSIGNMENTS = frozenset(["Assign", "AssignVariableOp"])
_INITIALIZERS = ("InitializeTable", "LookupTableImport", "MakeIterator")


def find_initializers(graph: OpGraph, collected: Iterable[str] = ()) -> list[str]:
    """Finds the operations that initialise the state that a step needs, and what they need.

    Args:
        graph: the graph, with what the step needs marked.
        collected: names that the graph's collections give; the graph may lack some of them.

    Returns:
        The collected operations that the graph has, and in the order of the graph, for each
        needed variable, table and iterator that none of them initialises, the operation that
        does: its assignment by TensorFlow's naming ("w/Assign"), or its initialiser. After them,
        in the same way, those of what they need themselves, as an iterator may a table.

    Raises:
        GraphError: a needed variable has nothing that initialises it.
    """
    names = [name for name in dict.fromkeys(collected) if name in graph.index]
    handles = _handle_owners(graph)
    found = names
    while True:
        if found:
            needed = graph.needed | graph.restricted(found).needed
            graph = dataclasses.replace(graph, needed=needed)
        found = _missing_initializers(graph, handles, names)
        if not found:
            return names
        names = names + found


def _missing_initializers(
    graph: OpGraph, handles: Sequence[int], names: Sequence[str]
) -> list[str]:
    """Finds the operations that initialise what is needed and what these do not initialise."""
    chosen = {graph.index[name] for name in names}
    initialised = {handles[i] for i in chosen if handles[i] >= 0}
    is_variable = graph.has_type(VARIABLES)
    missing = []
    by_owner: dict[int, list[int]] = {}
    for i, owner in enumerate(handles):
        if owner >= 0 and owner not in initialised and graph.needed[owner]:
            by_owner.setdefault(owner, []).append(i)
    for i in np.flatnonzero(is_variable & graph.needed).tolist():
        if i in initialised:
            continue
        found = [a for a in by_owner.get(i, ()) if graph.names[a] == f"{graph.names[i]}/Assign"]
        if not found:
            found = [a for a in by_owner.get(i, ()) if not graph.needed[a]]
        found = [a for a in found if graph.type_of(a) in _ASSIGNMENTS]
        if not found:
            raise GraphError(
                f"nothing initialises the variable {graph.names[i]!r}: pass initializers"
            )
        missing.append(graph.names[found[0]])
    for owner, operations in sorted(by_owner.items()):
        # Mutable tables are usable from the start: what imports into them restores checkpoints.
        if not is_variable[owner] and not graph.type_of(owner).startswith("Mutable"):
            # An iterator that can be initialised with several data sets gets the first.
            missing.append(graph.names[operations[0]])
    return list(dict.fromkeys(missing))


def _handle_owners(graph: OpGraph) -> list[int]:
    """Finds per assignment or initialiser the operation whose state it sets, else -1."""
    owners = [-1] * graph.num_operations
    for i in range(graph.num_operations):
        op_type = graph.type_of(i)
        if op_type not in _ASSIGNMENTS and not op_type.startswith(_INITIALIZERS):
            continue
        # The handle is the first input, but an iterator's, which is the second of MakeIterator.
        inputs = graph.input_tensors[i]
        number = 1 if op_type == "MakeIterator" else 0
        if len(inputs) > number:
            owners[i] = int(graph.tensor_producer[inputs[number]])
    return owners
