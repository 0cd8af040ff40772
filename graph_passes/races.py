"""Races: reads of variables that are not ordered with the writes."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np
from tensorflow.core.framework import types_pb2

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.order import find_order, list_edges
from graph_passes.shared_resources import find_variables
from graph_passes.unordered_takes import UnorderedTakes

__all__ = ["Race", "find_races", "list_values_of_chance"]

_RESOURCE = "VarHandleOp"
# Computing the new value of a counter takes a few operations.
_MAX_OPERATIONS_BEFORE_WRITER = 24
# Operations that forward a reference or handle and do not write.
_FORWARDS = frozenset(
    [
        *("RefIdentity", "RefSwitch", "RefEnter", "RefMerge", "RefNextIteration", "RefExit"),
        *("RefSelect", "Identity", "Switch", "Enter", "Merge", "NextIteration", "Exit"),
    ]
)
_SWITCHES = frozenset(["Switch", "RefSwitch"])
_QUERIES = frozenset(["IsVariableInitialized", "VarIsInitializedOp", "VariableShape"])
_READS = frozenset(["ReadVariableOp", "ResourceGather", "ResourceGatherNd"])
# In this attribute TensorFlow lists the variables that the functions of an operation only read; it
# uses the list to order reads and writes.
_READ_ONLY_INPUTS = "_read_only_resource_inputs"
# Operations whose output shares memory with the variable that they read.
_ALIASES = frozenset(
    [
        *("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient"),
        *("Snapshot", "CheckNumerics", "Switch", "Merge", "Enter", "Exit"),
    ]
)


@dataclasses.dataclass(frozen=True)
class Race:
    """A read and a write of a variable, which may run in either order.

    Attributes:
        variable: the operation that holds the variable; the first, if several share it by name.
        reader: the operation that reads its value.
        aliases: the operations that forward the value of a reference variable to the reader without
            a copy.
        writer: the operation that writes the variable.
        before_writer: all operations that must run before the writer, if they are few: then the
            order on one device is nearly always the same. None if they are many.
        is_asynchronous: true if several writes of the variable are not ordered with each other, as
            in towers that share variables without synchronization. Such races are intended.
        is_ordered: true if the reader waits for the writer, but the alias that it reads does not:
            the reader sees the written value on the device of the variable, and possibly an older
            one elsewhere.
    """

    variable: int
    reader: int
    aliases: tuple[int, ...]
    writer: int
    before_writer: tuple[int, ...] | None
    is_asynchronous: bool = False
    is_ordered: bool = False


def find_races(graph: OpGraph) -> list[Race]:
    """Finds the reads of variables that are not ordered with the writes.

    The value read depends on the order of the two. On the device of a reference variable, a read
    shares memory with it, so consumers of the read are part of the race; on another device, the
    value depends on the time of the transfer. The same holds if only a consumer of the read waits
    for the write, as in a moving average that is updated after a training step. A fetched tensor
    that shares memory with a reference variable is read at any time until the end of the step, so
    it races with every write that it does not follow. Pairs of reads and writes that are both in v1
    conditionals are ignored.

    Args:
        graph: the graph, with the operations of the step marked as needed.

    Returns:
        A race for each such read, with the first of the writes, in the order of the graph. Time is
        linear in the size of the graph, times its writes divided by the bits of a word.
    """
    if graph.needed.all():
        return []  # The step is unknown: no step needs the initializers of its variables.
    needed = graph.needed[graph.edge_consumer]
    of_variants = graph.tensor_dtypes[graph.edge_tensor] == types_pb2.DT_VARIANT
    handle_consumers = _list_consumers(graph, graph.edge_is_handle & ~of_variants & needed)
    readers = _list_consumers(graph, ~graph.edge_is_handle & needed)
    is_held = graph.has_type(VARIABLES) & graph.needed
    held = ([i for i in handles if is_held[i]] for handles in find_variables(graph))
    uses = {
        handles[0]: _classify_uses(graph, handles, handle_consumers) for handles in held if handles
    }
    uses = {variable: found for variable, found in uses.items() if found.writers}
    writers = [writer for found in uses.values() for writer in found.writers]
    bit = {writer: 1 << k for k, writer in enumerate(dict.fromkeys(writers))}
    before, after = find_order(graph, bit)
    races = []
    inputs = _list_inputs(graph)
    for variable, found in uses.items():
        # If all writes are ordered, then each precedes the next in topological order.
        in_order = sorted(found.writers, key=lambda writer: graph.position[writer])
        is_asynchronous = any(
            not {one, other} <= found.conditional and not before[one] & bit[other]
            for one, other in itertools.pairwise(in_order)
        )
        reads: Iterable[tuple[int, tuple[int, ...]]] = ((reader, ()) for reader in found.readers)
        if graph.type_of(variable) != _RESOURCE:
            reads = _find_reads(graph, found, readers)
        for reader, aliases in reads:
            for writer in found.writers:
                # They may be in different branches, of which only one runs.
                if {reader, writer} <= found.conditional:
                    continue
                is_returned = bool(aliases) and aliases[-1] == reader
                ordered = after[reader] if is_returned else before[reader] | after[reader]
                if not ordered & bit[writer]:
                    few_before = _list_predecessors(writer, inputs)
                    races.append(
                        Race(variable, reader, aliases, writer, few_before, is_asynchronous)
                    )
                    break
                if aliases and after[reader] & bit[writer] and not after[aliases[-1]] & bit[writer]:
                    races.append(
                        Race(
                            variable, reader, aliases, writer, (), is_asynchronous, is_ordered=True
                        )
                    )
                    break
    return races


def list_values_of_chance(
    graph: OpGraph, races: Iterable[Race], unordered_takes: Iterable[UnorderedTakes] = ()
) -> frozenset[str]:
    """Lists the operations whose values depend on the order of operations that have none.

    These are asynchronous updates of variables, and operations that take elements of one stream.

    Args:
        graph: the graph, with the operations of the step marked as needed.
        races: the races of the graph.
        unordered_takes: the operations that take elements of a stream in no order.

    Returns:
        The names of the variables and takers, and of all operations that are computed from them.
    """
    variables = {race.variable for race in races if race.is_asynchronous}
    takers = [taker for each in unordered_takes for taker in each.takers]
    if not variables and not takers:
        return frozenset()
    found = np.zeros(graph.num_operations, bool)
    found[takers] = True
    for handles in find_variables(graph):
        if not variables.isdisjoint(handles):
            found[[*handles]] = True
    for i in graph.order[graph.needed[graph.order]].tolist():
        found[i] = found[i] or any(found[p] for p in graph.producers[i])
    return frozenset(graph.names[i] for i in np.flatnonzero(found).tolist())


def _list_consumers(graph: OpGraph, edges: np.ndarray) -> dict[int, list[int]]:
    """Lists the consumers of each operation along some edges."""
    readers: dict[int, list[int]] = {}
    pairs = zip(
        graph.edge_producer[edges].tolist(), graph.edge_consumer[edges].tolist(), strict=True
    )
    for producer, consumer in pairs:
        readers.setdefault(producer, []).append(consumer)
    return readers


@dataclasses.dataclass(frozen=True)
class _Uses:
    """The operations that use a variable.

    Attributes:
        sources: the operations that hold the variable or forward a handle or reference to it.
        readers: the operations that read it by its handle.
        writers: the operations that write it.
        conditional: those of all these operations that are in a branch of a v1 conditional.
    """

    sources: list[int]
    readers: list[int]
    writers: list[int]
    conditional: set[int]


def _classify_uses(
    graph: OpGraph, handles: Iterable[int], handle_consumers: dict[int, list[int]]
) -> _Uses:
    """Classifies the operations that use a handle or reference of a variable."""
    found = _Uses([*handles], [], [], set())
    sources = set(found.sources)
    for source in found.sources:
        for consumer in handle_consumers.get(source, ()):
            op_type = graph.type_of(consumer)
            if op_type in _QUERIES or consumer in sources:
                continue
            if source in found.conditional or op_type in _SWITCHES:
                found.conditional.add(consumer)
            if op_type in _READS or _only_reads(graph, consumer, source):
                found.readers.append(consumer)
                continue
            found.sources.append(consumer)
            sources.add(consumer)
            if op_type not in _FORWARDS:
                found.writers.append(consumer)
    return found


def _only_reads(graph: OpGraph, consumer: int, source: int) -> bool:
    """Returns whether the functions that an operation runs only read the variable of a source.

    TensorFlow marks every input separately, also if the same handle is passed twice.
    """
    node = graph.graph_def.node[consumer]
    if _READ_ONLY_INPUTS not in node.attr:
        return False
    given = {i for i, text in enumerate(node.input) if text.split(":")[0] == graph.names[source]}
    return given <= set(node.attr[_READ_ONLY_INPUTS].list.i)


def _find_reads(
    graph: OpGraph, found: _Uses, readers: dict[int, list[int]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yields the operations that read the memory of a variable, with the aliases on the way.

    A fetched alias counts as its own reader.
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


def _list_inputs(graph: OpGraph) -> dict[int, list[int]]:
    """Lists the direct predecessors of each operation."""
    inputs: dict[int, list[int]] = {}
    for before, after in list_edges(graph):
        inputs.setdefault(after, []).append(before)
    return inputs


def _list_predecessors(operation: int, inputs: dict[int, list[int]]) -> tuple[int, ...] | None:
    """Lists all predecessors of an operation; None if they are many."""
    found = [operation]
    for i in found:
        found += [before for before in dict.fromkeys(inputs.get(i, ())) if before not in found]
        if len(found) > _MAX_OPERATIONS_BEFORE_WRITER:
            return None
    return tuple(found[1:])
