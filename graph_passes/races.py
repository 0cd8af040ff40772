"""Reads of variables that nothing orders with the writes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from tensorflow.core.framework import types_pb2

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.shared_resources import find_variables

__all__ = ["Race", "asynchronous_values", "find_races"]

_RESOURCE = "VarHandleOp"
# To count up takes a few operations.
_MOST_BEFORE = 24
# They hand on a reference or a handle and write nothing.
_HANDS_ON = frozenset(
    [
        *("RefIdentity", "RefSwitch", "RefEnter", "RefMerge", "RefNextIteration", "RefExit"),
        *("RefSelect", "Identity", "Switch", "Enter", "Merge", "NextIteration", "Exit"),
    ]
)
_SWITCHES = frozenset(["Switch", "RefSwitch"])
_ASKS = frozenset(["IsVariableInitialized", "VarIsInitializedOp", "VariableShape"])
_READS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd"])
# TensorFlow marks by it which variables the functions of an operation only read, and goes by it
# where it orders reads and writes.
_ONLY_READ = "_read_only_resource_inputs"
# Their outputs are in the memory of the variable that they read, so what reads them reads that.
_ALIASES = frozenset(
    [
        *("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient"),
        *("Snapshot", "CheckNumerics", "Switch", "Merge", "Enter", "Exit"),
    ]
)


@dataclasses.dataclass(frozen=True)
class Race:
    """A read and a write of a variable, either of which may come first.

    Attributes:
        variable: the operation that holds the variable; the first, if several share it by name.
        reader: the operation that reads its value.
        aliases: the operations through which the value of a reference variable reaches the reader
            without being copied.
        writer: the operation that writes it.
        before_writer: all that has to run before the writer, where that is little: on one device
            the order of the two is nearly always the same then. None where it is much.
        is_asynchronous: whether several operations write the variable in no order with each other,
            as towers do that share variables and wait for nobody: chance is meant to decide.
        is_ordered: whether the reader waits for the writer, and only the alias that it reads does
            not: on the device of the variable it reads what was written, elsewhere perhaps not.
    """

    variable: int
    reader: int
    aliases: tuple[int, ...]
    writer: int
    before_writer: tuple[int, ...] | None
    is_asynchronous: bool = False
    is_ordered: bool = False


def find_races(graph: OpGraph) -> list[Race]:
    """Finds the reads of variables that nothing orders with the writes.

    The value depends on which of the two runs first. On its own device a read of a reference
    variable shares memory with it, so that whatever reads on is part of the race; on another device
    the value depends on when it is sent. So it does where only what reads on waits for the write,
    as a moving average does that is updated behind a training step. A fetched tensor that shares
    memory with a reference variable is read at any time until the step ends, so that it races with
    every write that it does not follow. Left out are reads and writes that are both in v1
    conditionals.

    Args:
        graph: the graph, with what the step needs marked.

    Returns:
        A race per such read, with the first of the writes, in the order of the graph. Time is
        linear in the size of the graph, times its writes divided by the bits of a word.
    """
    if graph.needed.all():
        return []  # No step is known: one that needs its variables' initializers makes no sense.
    needed = graph.needed[graph.edge_consumer]
    of_variants = graph.tensor_dtypes[graph.edge_tensor] == types_pb2.DT_VARIANT
    takers = _readers(graph, graph.edge_is_handle & ~of_variants & needed)
    readers = _readers(graph, ~graph.edge_is_handle & needed)
    is_held = graph.has_type(VARIABLES) & graph.needed
    held = ([i for i in handles if is_held[i]] for handles in find_variables(graph))
    uses = {handles[0]: _uses(graph, handles, takers) for handles in held if handles}
    uses = {variable: found for variable, found in uses.items() if found.writers}
    writers = [writer for found in uses.values() for writer in found.writers]
    bit = {writer: 1 << k for k, writer in enumerate(dict.fromkeys(writers))}
    before, after = _ordered_with(graph, bit)
    races = []
    inputs = _inputs(graph)
    for variable, found in uses.items():
        # Writes that all follow each other do so in topological order, too.
        in_order = sorted(found.writers, key=lambda writer: graph.position[writer])
        is_asynchronous = any(
            not {one, other} <= found.conditional and not before[one] & bit[other]
            for one, other in itertools.pairwise(in_order)
        )
        reads: Iterable[tuple[int, tuple[int, ...]]] = ((reader, ()) for reader in found.readers)
        if graph.type_of(variable) != _RESOURCE:
            reads = _reads(graph, found, readers)
        for reader, aliases in reads:
            for writer in found.writers:
                # Of two branches only one runs, and which of them these are in is not looked at.
                if {reader, writer} <= found.conditional:
                    continue
                is_returned = bool(aliases) and aliases[-1] == reader
                ordered = after[reader] if is_returned else before[reader] | after[reader]
                if not ordered & bit[writer]:
                    little = _before(writer, inputs)
                    races.append(Race(variable, reader, aliases, writer, little, is_asynchronous))
                    break
                if aliases and after[reader] & bit[writer] and not after[aliases[-1]] & bit[writer]:
                    races.append(
                        Race(
                            variable, reader, aliases, writer, (), is_asynchronous, is_ordered=True
                        )
                    )
                    break
    return races


def asynchronous_values(graph: OpGraph, races: Iterable[Race]) -> frozenset[str]:
    """Lists the operations whose values hang on the order of asynchronous updates.

    Args:
        graph: the graph, with what the step needs marked.
        races: of the graph.

    Returns:
        The names of the variables, and of all that is computed from them.
    """
    variables = {race.variable for race in races if race.is_asynchronous}
    if not variables:
        return frozenset()
    found = np.zeros(graph.num_operations, bool)
    for handles in find_variables(graph):
        if not variables.isdisjoint(handles):
            found[[*handles]] = True
    for i in graph.order[graph.needed[graph.order]].tolist():
        found[i] = found[i] or any(found[p] for p in graph.producers[i])
    return frozenset(graph.names[i] for i in np.flatnonzero(found).tolist())


def _readers(graph: OpGraph, edges: np.ndarray) -> dict[int, list[int]]:
    """Lists by operation what reads it by these edges."""
    readers: dict[int, list[int]] = {}
    pairs = zip(
        graph.edge_producer[edges].tolist(), graph.edge_consumer[edges].tolist(), strict=True
    )
    for producer, consumer in pairs:
        readers.setdefault(producer, []).append(consumer)
    return readers


@dataclasses.dataclass(frozen=True)
class _Uses:
    """Who uses a variable.

    Attributes:
        sources: what hands on its handle or a reference to it, what holds it included.
        readers: what reads it by its handle.
        writers: what writes it.
        conditional: which of all these run in a branch of a v1 conditional only.
    """

    sources: list[int]
    readers: list[int]
    writers: list[int]
    conditional: set[int]


def _uses(graph: OpGraph, handles: Iterable[int], takers: dict[int, list[int]]) -> _Uses:
    """Finds who takes a handle of a variable, or a reference to it, and what for."""
    found = _Uses([*handles], [], [], set())
    sources = set(found.sources)
    for source in found.sources:
        for taker in takers.get(source, ()):
            op_type = graph.type_of(taker)
            if op_type in _ASKS or taker in sources:
                continue
            if source in found.conditional or op_type in _SWITCHES:
                found.conditional.add(taker)
            if op_type in _READS or _only_reads(graph, taker, source):
                found.readers.append(taker)
                continue
            found.sources.append(taker)
            sources.add(taker)
            if op_type not in _HANDS_ON:
                found.writers.append(taker)
    return found


def _only_reads(graph: OpGraph, taker: int, source: int) -> bool:
    """Says whether an operation runs functions that read what the source gives it, and write none.

    A handle that is given twice is marked twice where it is only read.
    """
    node = graph.graph_def.node[taker]
    if _ONLY_READ not in node.attr:
        return False
    given = {i for i, text in enumerate(node.input) if text.split(":")[0] == graph.names[source]}
    return given <= set(node.attr[_ONLY_READ].list.i)


def _reads(
    graph: OpGraph, found: _Uses, readers: dict[int, list[int]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields the operations that read what is in the memory of a variable, and through what.

    An operation through which it is fetched stands for its own reader.
    """
    seen = set()
    stack: list[tuple[int, tuple[int, ...]]] = [(source, ()) for source in found.sources]
    while stack:
        source, aliases = stack.pop()
        for reader in readers.get(source, ()):
            if reader in seen:
                continue
            seen.add(reader)
            if source in found.conditional or graph.type_of(reader) in _SWITCHES:
                found.conditional.add(reader)
            if graph.type_of(reader) in _ALIASES:
                stack.append((reader, (*aliases, reader)))
                if graph.fetched[reader]:
                    yield stack[-1]
            else:
                yield reader, aliases


def _inputs(graph: OpGraph) -> dict[int, list[int]]:
    """Lists what each operation waits for."""
    inputs: dict[int, list[int]] = {}
    for before, after in _edges(graph):
        inputs.setdefault(after, []).append(before)
    return inputs


def _before(operation: int, inputs: dict[int, list[int]]) -> tuple[int, ...] | None:
    """Lists all that has to run before an operation; None if that is much."""
    found = [operation]
    for i in found:
        found += [before for before in dict.fromkeys(inputs.get(i, ())) if before not in found]
        if len(found) > _MOST_BEFORE:
            return None
    return tuple(found[1:])


def _edges(graph: OpGraph) -> list[tuple[int, int]]:
    data = zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True)
    return [*data, *((before, after) for before, after in graph.control_edges.tolist())]


def _ordered_with(graph: OpGraph, bit: dict[int, int]) -> tuple[list[int], list[int]]:
    """Computes for every operation the set of writers that it precedes, and that it follows."""
    edges = _edges(graph)
    position = graph.position.tolist()
    edges.sort(key=lambda edge: position[edge[0]])
    backwards = sorted(edges, key=lambda edge: -position[edge[1]])
    before, after = [0] * graph.num_operations, [0] * graph.num_operations
    for writer, mask in bit.items():
        before[writer] = after[writer] = mask
    # Of an iteration all comes before the end of its loop, to which an edge leads that goes back:
    # each nested loop takes another turn.
    has_changed = True
    while has_changed:
        has_changed = False
        for a, b in edges:
            if after[a] & ~after[b]:
                after[b] |= after[a]
                has_changed |= position[b] < position[a]
        for a, b in backwards:
            if before[b] & ~before[a]:
                before[a] |= before[b]
                has_changed |= position[b] < position[a]
    return before, after
