"""From a grouping to what placers see of it."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.grouping import Grouping
from graph_passes.grouping.layers import number_layers
from graph_passes.op_graph import OpGraph
from graph_passes.work import estimate_work

__all__ = ["build_group_graph"]


def build_group_graph(
    graph: OpGraph, colocation: ColocationGroups, grouping: Grouping
) -> GroupGraph:
    """Sums up the needed operations of each group and the tensors between groups.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.

    Returns:
        The graph of groups. A tensor of unknown size counts no bytes.
    """
    count = grouping.num_groups
    of_operation = grouping.of_operations(colocation)
    of_operation = np.where(graph.needed, of_operation, -1)
    operations = np.flatnonzero(of_operation >= 0)
    groups = of_operation[operations]

    names = [""] * count
    for i in graph.order[::-1].tolist():
        if of_operation[i] >= 0:
            names[of_operation[i]] = graph.names[i]
    type_counts = np.zeros((count, len(graph.type_names)), np.int32)
    np.add.at(type_counts, (groups, graph.types[operations]), 1)
    occurs = type_counts.sum(axis=0) > 0
    work = np.bincount(groups, estimate_work(graph)[operations], minlength=count)

    producer, consumer = of_operation[graph.edge_producer], of_operation[graph.edge_consumer]
    crosses = (producer >= 0) & (consumer >= 0) & (producer != consumer)
    # A tensor crosses to a group once, however many of its operations read it.
    sent = np.unique(
        np.stack([graph.edge_tensor[crosses], consumer[crosses]], axis=1).reshape(-1, 2), axis=0
    )
    sender = of_operation[graph.tensor_producer[sent[:, 0]]]
    edges, edge_of = np.unique(
        np.stack([sender, sent[:, 1]], axis=1).reshape(-1, 2), axis=0, return_inverse=True
    )
    edge_bytes = np.zeros(len(edges), np.int64)
    np.add.at(edge_bytes, edge_of.reshape(-1), np.maximum(graph.tensor_bytes[sent[:, 0]], 0))
    return GroupGraph(
        names=tuple(names),
        kinds=grouping.kinds,
        type_names=tuple(n for n, o in zip(graph.type_names, occurs, strict=True) if o),
        type_counts=type_counts[:, occurs],
        output_shapes=_leaving_shapes(graph, of_operation, np.unique(sent[:, 0]), count),
        edges=edges.astype(np.int32),
        edge_bytes=edge_bytes,
        work=work.astype(np.float64),
        layers=number_layers(graph, colocation, grouping),
    )


def _leaving_shapes(
    graph: OpGraph, of_operation: np.ndarray, tensors: np.ndarray, count: int
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    # Most bytes first; ties in the order of the graph.
    by_size = tensors[np.argsort(-graph.tensor_bytes[tensors], kind="stable")]
    shapes: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    for tensor in by_size.tolist():
        group = of_operation[graph.tensor_producer[tensor]]
        shapes[group].append(graph.tensor_shapes[tensor] or ())
    return tuple(tuple(s) for s in shapes)
