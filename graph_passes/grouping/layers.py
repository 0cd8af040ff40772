"""Layers: groups that share variables, numbered from the inputs."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import PINNED, Grouping
from graph_passes.grouping.regions import find_weight_sources
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import LOOKUPS, VARIABLES
from graph_passes.util.union_find import UnionFind
from graph_passes.work import CONTRACTIONS

__all__ = ["number_layers"]


def number_layers(graph: OpGraph, colocation: ColocationGroups, grouping: Grouping) -> np.ndarray:
    """Finds the layer of each group.

    Sealed groups that use the same variable, such as the steps of a recurrent cell, form a layer
    together with the group of the variable; scalar variables are ignored. Layers are numbered by
    their first contraction or lookup in topological order (a layer without any, by its first
    operation that is no parameter). Other groups belong to the last layer that they read from, else
    to the first layer that reads from them.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.

    Returns:
        int32 [num_groups], 0 for the first layer.
    """
    group_of_operation = grouping.expand_to_operations(colocation)
    is_model_group = grouping.sealed & np.array([kind != PINNED for kind in grouping.kinds], bool)
    source = find_weight_sources(graph)
    sets = UnionFind(grouping.num_groups)
    in_layer = is_model_group.copy()
    has_source = np.array([s is not None and not _is_scalar(graph, s) for s in source], bool)
    reads = has_source[graph.edge_producer]
    for producer, consumer in zip(
        graph.edge_producer[reads].tolist(), graph.edge_consumer[reads].tolist(), strict=True
    ):
        variable = source[producer]
        assert variable is not None
        holder, reader = int(group_of_operation[variable]), int(group_of_operation[consumer])
        if holder >= 0 and reader >= 0 and is_model_group[reader] and _is_movable(grouping, holder):
            in_layer[holder] = True
            sets.union(holder, reader)
    if not in_layer.any():
        return np.arange(grouping.num_groups, dtype=np.int32)

    # Parameters and slices of labels come early in topological order, whatever their layer is, so
    # the first contraction or lookup of a layer determines its number.
    is_parameter = graph.has_type([*VARIABLES, "Const"]) | np.array([s is not None for s in source])
    is_anchor = graph.has_type(CONTRACTIONS | LOOKUPS)
    first: dict[int, int] = {}
    for is_candidate in (is_anchor, ~is_parameter):
        found: dict[int, int] = {}
        for i in graph.order[is_candidate[graph.order]].tolist():
            group = int(group_of_operation[i])
            if group >= 0 and graph.needed[i] and in_layer[group]:
                found.setdefault(sets.find(group), int(graph.position[i]))
        first = found | first
    rank = {layer: number for number, layer in enumerate(sorted(first, key=first.__getitem__))}
    layers = np.full(grouping.num_groups, -1, np.int32)
    for group in np.flatnonzero(in_layer).tolist():
        layers[group] = rank.get(sets.find(group), len(rank))
    _spread(graph, group_of_operation, layers)
    return layers


def _is_movable(grouping: Grouping, group: int) -> bool:
    return grouping.kinds[group] != PINNED


def _is_scalar(graph: OpGraph, variable: int) -> bool:
    attr = graph.graph_def.node[variable].attr
    return "shape" in attr and not attr["shape"].shape.unknown_rank and not attr["shape"].shape.dim


def _spread(graph: OpGraph, group_of_operation: np.ndarray, layers: np.ndarray) -> None:
    """Assigns groups without a layer to that of a neighbor."""
    consumers = group_of_operation[graph.edge_consumer]
    producers = group_of_operation[graph.edge_producer]
    live = (producers >= 0) & (consumers >= 0) & (producers != consumers)
    pairs = np.unique(np.stack([producers[live], consumers[live]], axis=1), axis=0)
    # Forward first: only groups that no layer precedes take a layer that reads from them.
    _spread_along(pairs, layers, max)
    _spread_along(pairs[:, ::-1], layers, min)
    layers[layers < 0] = 0


def _spread_along(
    pairs: np.ndarray, layers: np.ndarray, best: Callable[[Iterable[int]], int]
) -> None:
    """Spreads layers breadth first, with `best` as the choice among neighbors."""
    after: list[list[int]] = [[] for _ in layers]
    for source, target in pairs.tolist():
        after[source].append(target)
    reached = np.flatnonzero(layers >= 0).tolist()
    while reached:
        found: dict[int, list[int]] = collections.defaultdict(list)
        for source in reached:
            for target in after[source]:
                if layers[target] < 0:
                    found[target].append(int(layers[source]))
        for target, offers in found.items():
            layers[target] = best(offers)
        reached = list(found)
