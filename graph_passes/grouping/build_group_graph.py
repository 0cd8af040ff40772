"""From a grouping to what placers see of it."""

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
    """Sums up the needed operations of each group and the tensors between groups.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        layers: int32 [num_groups], the layers; by default those that `number_layers` finds.
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

    makers = of_operation[graph.tensor_producer]
    readers = of_operation[graph.edge_consumer]
    counts = (makers[graph.edge_tensor] >= 0) & (readers >= 0) & ~graph.fed[graph.edge_tensor]
    crossings = find_crossings(
        count,
        np.stack([graph.edge_tensor, readers], axis=1)[counts],
        makers,
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
