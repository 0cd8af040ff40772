"""Construction of the group graph, which placers see."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.group_graph import GroupGraph, find_crossings
from graph_passes.grouping.grouping import Grouping
from graph_passes.grouping.layers import number_layers
from graph_passes.op_graph import OpGraph
from graph_passes.work import estimate_work

__all__ = ["build_group_graph"]


def build_group_graph(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    layers: np.ndarray | None = None,
) -> GroupGraph:
    """Builds the group graph from the needed operations and the tensors between groups.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        layers: int32 [num_groups], the layers; by default those that `number_layers` finds.
    """
    count = grouping.num_groups
    group_of_operation = grouping.expand_to_operations(colocation)
    group_of_operation = np.where(graph.needed, group_of_operation, -1)
    operations = np.flatnonzero(group_of_operation >= 0)
    groups = group_of_operation[operations]

    names = [""] * count
    for i in graph.order[::-1].tolist():
        if group_of_operation[i] >= 0:
            names[group_of_operation[i]] = graph.names[i]
    type_counts = np.zeros((count, len(graph.type_names)), np.int32)
    np.add.at(type_counts, (groups, graph.types[operations]), 1)
    occurs = type_counts.sum(axis=0) > 0
    work = np.bincount(groups, estimate_work(graph)[operations], minlength=count)

    producers = group_of_operation[graph.tensor_producer]
    consumers = group_of_operation[graph.edge_consumer]
    is_crossing = (
        (producers[graph.edge_tensor] >= 0) & (consumers >= 0) & ~graph.fed[graph.edge_tensor]
    )
    crossings = find_crossings(
        count,
        np.stack([graph.edge_tensor, consumers], axis=1)[is_crossing],
        producers,
        graph.tensor_bytes,
        graph.position[graph.tensor_producer],
    )
    return GroupGraph(
        names=tuple(names),
        kinds=grouping.kinds,
        type_names=tuple(n for n, o in zip(graph.type_names, occurs, strict=True) if o),
        type_counts=type_counts[:, occurs],
        output_shapes=tuple(
            tuple(graph.tensor_shapes[tensor] or () for tensor in tensors)
            for tensors in crossings.leaving
        ),
        edges=crossings.edges,
        edge_bytes=crossings.edge_bytes,
        work=work.astype(np.float64),
        layers=number_layers(graph, colocation, grouping) if layers is None else layers,
    )
