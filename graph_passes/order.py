"""The order in which the edges of a graph make operations run."""

from __future__ import annotations

from collections.abc import Mapping

from graph_passes.op_graph import OpGraph

__all__ = ["find_order", "list_edges"]


def list_edges(graph: OpGraph) -> list[tuple[int, int]]:
    """Lists the pairs of operations of which the second waits for the first."""
    data = zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True)
    return [*data, *((before, after) for before, after in graph.control_edges.tolist())]


def find_order(graph: OpGraph, bit: Mapping[int, int]) -> tuple[list[int], list[int]]:
    """Computes the sets of marked operations that each operation precedes and follows.

    Args:
        graph: the graph.
        bit: the bit of each marked operation.

    Returns:
        For each operation the bits of the marked ones that it precedes, and of those that it
        follows; a marked operation does both to itself. Time is linear in the size of the graph,
        times the marked operations divided by the bits of a word.
    """
    edges = list_edges(graph)
    position = graph.position.tolist()
    edges.sort(key=lambda edge: position[edge[0]])
    backwards = sorted(edges, key=lambda edge: -position[edge[1]])
    before, after = [0] * graph.num_operations, [0] * graph.num_operations
    for operation, mask in bit.items():
        before[operation] = after[operation] = mask
    # All operations of an iteration precede the end of their loop, to which a backward edge leads,
    # so each nesting level of loops needs another round.
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
