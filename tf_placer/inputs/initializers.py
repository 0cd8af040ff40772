"""Finds the operations that have to run before the first step of a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from graph_passes.errors import StepError
from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.shared_resources import find_resources

__all__ = ["expand_groups", "find_initializers", "list_operations"]

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
# Operations that pass a handle through unchanged.
_PASS_THROUGH = frozenset(["Identity", "RefIdentity"])
# The attribute in which TensorFlow lists the inputs that the functions of an operation only read.
_ONLY_READ = "_read_only_resource_inputs"
# Operations that pass a handle into a conditional or a loop.
_INTO_CONTROL_FLOW = frozenset(["Switch", "RefSwitch", "Enter", "RefEnter"])


def find_initializers(graph: OpGraph, collected: Iterable[str] = ()) -> list[str]:
    """Finds the operations that initialize the state that a step needs.

    An operation in a conditional or a loop of the step, such as an assignment in a v1 conditional,
    is no initializer.

    Args:
        graph: the graph, with the operations of the step marked.
        collected: names of operations and tensors in the graph's collections; the graph may lack
            some of them.

    Returns:
        The collected operations that the graph has, with groups replaced by their members. Then the
        initializers of all variables, tables and iterators that the step or an initializer needs
        and that no collected operation initializes. The initializer of a variable is its assignment
        by TensorFlow's naming convention ("w/Assign"), or another assignment outside of the step.

    Raises:
        GraphError: a needed variable has no initializer.
    """
    present = (name for name in list_operations(collected) if name in graph.index)
    names = expand_groups(graph, present)
    held = _find_states(graph)
    states = {i: held.first[state] for i, state in _map_setters(graph).items()}
    needed = graph.needed
    settled: set[int] = set()
    if names:
        initialized = graph.restrict(names).needed
        settled = {state for i, state in states.items() if initialized[i]}
        settled |= {
            held.first[i] for i in _find_states_set_by_calls(graph, initialized) if i in held.first
        }
        needed = needed | initialized
    by_state: dict[int, list[int]] = {}
    for i, state in states.items():
        if not _is_in_control_flow(graph, i):
            by_state.setdefault(state, []).append(i)
    # An initializer may read other variables, which need initializers, too.
    while missing := sorted(set(held.user_state[needed[held.user]].tolist()) - settled):
        settled.update(missing)
        found = [
            _choose_initializer(graph, held.handles[each], by_state.get(each, []))
            for each in missing
        ]
        names += [name for name in found if name is not None]
        if names:
            needed = needed | graph.restrict(names).needed
    return list(dict.fromkeys(names))


def list_operations(names: Iterable[str]) -> list[str]:
    """Lists the distinct operations that names of operations and tensors refer to."""
    return list(dict.fromkeys(name.partition(":")[0] for name in names))


def expand_groups(graph: OpGraph, names: Iterable[str]) -> list[str]:
    """Replaces group operations (`tf.group`) by their members, at any depth.

    Args:
        graph: the graph.
        names: names of operations of the graph.

    Returns:
        The distinct names of operations.
    """
    grouped: dict[int, list[int]] = {}
    for before, after in graph.control_edges.tolist():
        grouped.setdefault(after, []).append(before)
    found: dict[str, None] = {}
    waiting = [graph.index[name] for name in names][::-1]
    seen = set()
    while waiting:
        i = waiting.pop()
        if i in seen:
            continue
        seen.add(i)
        if graph.type_of(i) == "NoOp" and i in grouped:
            waiting += grouped[i][::-1]
        else:
            found[graph.names[i]] = None
    return list(found)


@dataclasses.dataclass(frozen=True, eq=False)
class _StateHandles:
    """The variables, tables and iterators of a graph, each known by its first handle operation.

    Several operations can return a handle of the same resource.

    Attributes:
        handles: all handle operations of a resource, by its first one.
        first: the first handle operation of the same resource, by handle operation.
        user: int32 [num_users], operations that return a handle, or run functions that look one up.
        user_state: int32 [num_users], the first handle operation of the resource of each user.
    """

    handles: dict[int, list[int]]
    first: dict[int, int]
    user: np.ndarray
    user_state: np.ndarray


def _find_states(graph: OpGraph) -> _StateHandles:
    is_state = graph.has_type(VARIABLES | _TABLES_AND_ITERATORS)
    handles: dict[int, list[int]] = {}
    users = []
    for operations in find_resources(graph).values():
        same = [i for i in operations if is_state[i]]
        if same:
            handles[same[0]] = same
            users += [(i, same[0]) for i in operations]
    first = {i: state for state, same in handles.items() for i in same}
    for i in _list_indices(is_state):
        if i not in first:
            handles[i], first[i] = [i], i
            users.append((i, i))
    columns = np.array(users, np.int32).reshape(-1, 2)
    return _StateHandles(handles, first, columns[:, 0], columns[:, 1])


def _list_indices(flags: np.ndarray) -> list[int]:
    return np.flatnonzero(flags).tolist()


def _find_states_set_by_calls(graph: OpGraph, initialized: np.ndarray) -> set[int]:
    """Finds the variables and tables that initializers set inside of functions.

    Args:
        graph: the graph.
        initialized: bool [num_operations], whether an operation runs with the initializers.
    """
    functions = FunctionLibrary(graph.graph_def)
    found = set()
    for i in _list_indices(initialized & _takes_handle(graph)):
        node = graph.graph_def.node[i]
        bodies = (functions.body(name) for name in functions.find_all_callees(node))
        if not any(_sets(inner.op) for body in bodies for inner in body):
            continue
        only_read = set(node.attr[_ONLY_READ].list.i) if _ONLY_READ in node.attr else set()
        given = (p for number, p in enumerate(graph.producers[i]) if number not in only_read)
        found |= {_find_state(graph, producer) for producer in given}
    return found


def _takes_handle(graph: OpGraph) -> np.ndarray:
    takes = np.zeros(graph.num_operations, bool)
    takes[graph.edge_consumer[graph.edge_is_handle]] = True
    return takes


def _choose_initializer(
    graph: OpGraph, handles: Sequence[int], setters: Sequence[int]
) -> str | None:
    """Chooses the operation that initializes a variable, table or iterator.

    Args:
        graph: the graph.
        handles: the handle operations of the resource.
        setters: the operations that set the resource.

    Returns:
        The name of the operation; None if the resource needs no initializer.

    Raises:
        GraphError: a variable has no initializer.
    """
    state = handles[0]
    if graph.type_of(state) not in VARIABLES:
        # Mutable tables need no initializer; operations that import into them restore checkpoints.
        if graph.type_of(state).startswith("Mutable") or not setters:
            return None
        # An iterator that can be initialized with several data sets gets the first.
        return graph.names[setters[0]]
    assigns = [i for i in setters if graph.type_of(i) in _ASSIGNMENTS]
    by_name = {f"{graph.names[handle]}/Assign" for handle in handles}
    for i in assigns:
        if graph.names[i] in by_name:
            return graph.names[i]
    for i in assigns:
        if not graph.needed[i]:
            return graph.names[i]
    raise StepError(f"nothing initializes the variable {graph.names[state]!r}: pass initializers")


def _map_setters(graph: OpGraph) -> dict[int, int]:
    """Maps assignments and initializers to the variable, table or iterator that they set."""
    states = {}
    for i in range(graph.num_operations):
        handle = _find_handle(graph, i)
        state = _find_state(graph, handle) if handle >= 0 else -1
        if state >= 0 and _holds_state(graph.type_of(state)):
            states[i] = state
    return states


def _find_state(graph: OpGraph, handle: int) -> int:
    """Finds the operation that created a handle."""
    while graph.type_of(handle) in _PASS_THROUGH | _INTO_CONTROL_FLOW:
        handle = graph.producers[handle][0]
    return handle


def _is_in_control_flow(graph: OpGraph, setter: int) -> bool:
    """Says whether an operation gets the handle that it sets through a switch or into a loop."""
    i = _find_handle(graph, setter)
    while graph.type_of(i) in _PASS_THROUGH:
        i = graph.producers[i][0]
    return graph.type_of(i) in _INTO_CONTROL_FLOW


def _find_handle(graph: OpGraph, i: int) -> int:
    """Finds the producer of the handle that an operation sets; -1 if the operation sets none."""
    op_type = graph.type_of(i)
    if not _sets(op_type):
        return -1
    # The handle of an iterator is the second input, all others are the first.
    number = 1 if op_type in ("MakeIterator", "MultiDeviceIteratorInit") else 0
    producers = graph.producers[i]
    return producers[number] if len(producers) > number else -1


def _sets(op_type: str) -> bool:
    return op_type in _ASSIGNMENTS or op_type.startswith(_INITIALIZERS)


def _holds_state(op_type: str) -> bool:
    return op_type in VARIABLES or op_type in _TABLES_AND_ITERATORS
