"""Reads of reference variables that nothing orders with the writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
from tensorflow.core.framework import types_pb2

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["Race", "find_races"]

# They hand on a reference and write nothing.
_HANDS_ON_REFERENCES = frozenset(
    ["RefIdentity", "RefSwitch", "RefEnter", "RefMerge", "RefNextIteration", "RefExit", "RefSelect"]
)
_ASKS = frozenset(["IsVariableInitialized"])
# Their outputs are in the memory of the variable that they read, so what reads them reads that.
_ALIASES = frozenset(
    [
        *("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient"),
        *("Snapshot", "CheckNumerics", "Switch", "Merge", "Enter", "Exit"),
    ]
)


@dataclasses.dataclass(frozen=True)
class Race:
    """A read and a write of a reference variable, either of which may come first.

    Attributes:
        variable: the operation that holds the variable.
        reader: the operation that reads its value.
        aliases: the operations through which the value reaches the reader without being copied.
        writer: the operation that writes it.
    """

    variable: int
    reader: int
    aliases: tuple[int, ...]
    writer: int


def find_races(graph: OpGraph) -> list[Race]:
    """Finds the reads of reference variables that nothing orders with the writes.

    On one device such a read shares memory with the variable, so that its value depends on which
    operation runs first; on another device it depends on when the value is sent.

    Args:
        graph: the graph, with what the step needs marked.

    Returns:
        A race per such read, with the first of the writes, in the order of the graph. Time is
        linear in the size of the graph, times its writes divided by the bits of a word.
    """
    if graph.needed.all():
        return []  # No step is known: one that needs its variables' initialisers makes no sense.
    is_value = ~np.isin(graph.tensor_dtypes, (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT))
    needed = graph.needed[graph.edge_consumer]
    by_reference = graph.edge_is_handle & is_value[graph.edge_tensor] & needed
    if not by_reference.any():
        return []
    takers = _readers(graph, by_reference)
    readers = _readers(graph, ~graph.edge_is_handle & needed)
    variables = np.flatnonzero(graph.has_type(VARIABLES) & graph.needed).tolist()
    written = {variable: _writers(graph, variable, takers) for variable in variables}
    written = {variable: found for variable, found in written.items() if found[1]}
    writers = [writer for _, found in written.values() for writer in found]
    bit = {writer: 1 << k for k, writer in enumerate(dict.fromkeys(writers))}
    before, after = _ordered_with(graph, bit)
    races = []
    for variable, (sources, found) in written.items():
        for reader, aliases in _reads(graph, sources, readers):
            for writer in found:
                if not (before[reader] | after[reader]) & bit[writer]:
                    races.append(Race(variable, reader, aliases, writer))
                    break
    return races


def _readers(graph: OpGraph, edges: np.ndarray) -> dict[int, list[int]]:
    """Lists by operation what reads it by these edges."""
    readers: dict[int, list[int]] = {}
    pairs = zip(
        graph.edge_producer[edges].tolist(), graph.edge_consumer[edges].tolist(), strict=True
    )
    for producer, consumer in pairs:
        readers.setdefault(producer, []).append(consumer)
    return readers


def _writers(
    graph: OpGraph, variable: int, takers: dict[int, list[int]]
) -> tuple[list[int], list[int]]:
    """Finds what hands out references to a variable, itself included, and what writes it."""
    sources, writers = [variable], []
    for source in sources:
        for taker in takers.get(source, ()):
            op_type = graph.type_of(taker)
            if op_type in _ASKS or taker in sources:
                continue
            sources.append(taker)
            if op_type not in _HANDS_ON_REFERENCES:
                writers.append(taker)
    return sources, writers


def _reads(
    graph: OpGraph, sources: Sequence[int], readers: dict[int, list[int]]
) -> Iterable[tuple[int, tuple[int, ...]]]:
    """Yields the operations that read what is in the memory of a variable, and through what."""
    seen = set()
    stack: list[tuple[int, tuple[int, ...]]] = [(source, ()) for source in sources]
    while stack:
        source, aliases = stack.pop()
        for reader in readers.get(source, ()):
            if reader in seen:
                continue
            seen.add(reader)
            if graph.type_of(reader) in _ALIASES:
                stack.append((reader, (*aliases, reader)))
            else:
                yield reader, aliases


def _ordered_with(graph: OpGraph, bit: dict[int, int]) -> tuple[list[int], list[int]]:
    """Computes for every operation the set of writers that it precedes, and that it follows."""
    edges = [
        *zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True),
        *(tuple(edge) for edge in graph.control_edges.tolist()),
    ]
    position = graph.position.tolist()
    # Edges that close a loop go back.
    edges = [(a, b) for a, b in edges if position[a] < position[b]]
    before, after = [0] * graph.num_operations, [0] * graph.num_operations
    for writer, mask in bit.items():
        before[writer] = after[writer] = mask
    for a, b in sorted(edges, key=lambda edge: position[edge[0]]):
        after[b] |= after[a]
    for a, b in sorted(edges, key=lambda edge: -position[edge[1]]):
        before[a] |= before[b]
    return before, after
