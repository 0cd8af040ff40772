"""Branches: chains of layers between a fork and a join."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.grouping.region_sets import BRANCH, LAYER, RegionSets
from graph_passes.grouping.regions import Regions, carries_data
from graph_passes.op_graph import OpGraph

__all__ = ["join_branches"]


def join_branches(
    graph: OpGraph, regions: Regions, region_sets: RegionSets, work: np.ndarray, max_work: float
) -> None:
    """Joins the layers of each branch.

    Args:
        graph: the graph.
        regions: its regions.
        region_sets: its sets of regions, in which chains of layers between a fork and a
            join become branches.
        work: float64 [num_operations], the work of each operation.
        max_work: the maximum work of one branch; heavier branches are split.
    """
    count = len(regions.anchors)
    readers, sources = _build_graph(graph, regions, region_sets)
    load = [0.0] * count
    in_region = np.flatnonzero(regions.region >= 0)
    for r, flops in zip(regions.region[in_region].tolist(), work[in_region].tolist(), strict=True):
        load[region_sets.find(r)] += flops
    is_layer = [region_sets.find(b) == b and region_sets.kind(b) == LAYER for b in range(count)]

    def find_next(b: int) -> int | None:
        """Finds the next layer of a chain, if it is the only reader and has no other source."""
        if len(readers.get(b, ())) == 1:
            (n,) = readers[b]
            if n < count and is_layer[n] and len(sources[n]) == 1:
                return n
        return None

    continuations = {find_next(b) for b in range(count) if is_layer[b]}
    chains = []
    for head in range(count):
        if is_layer[head] and head not in continuations:
            chain = [head]
            while (n := find_next(chain[-1])) is not None:
                chain.append(n)
            if _is_branch(chain, readers, sources):
                chains.append(chain)
    for chain in chains:
        first, held_work = chain[0], 0.0
        for b in chain:
            if held_work and held_work + load[b] > max_work:
                first, held_work = b, 0.0
            held_work += load[b]
            region_sets.join(first, b, BRANCH)


def _build_graph(
    graph: OpGraph, regions: Regions, region_sets: RegionSets
) -> tuple[Mapping[int, Sequence[int]], Mapping[int, Sequence[int]]]:
    """Builds the graph of sets of regions and the forward operations outside of them.

    Returns:
        The readers and the sources of each node. The nodes are sets of regions and, with higher
        numbers, operations.
    """
    count = len(regions.anchors)
    set_of_region = np.array([region_sets.find(r) for r in range(count)], np.int64)
    outside = count + np.arange(graph.num_operations)
    node = np.where(regions.region >= 0, set_of_region[regions.region], outside)
    # Edges from weights and to updates of moving averages are no flow of data.
    is_data_flow = regions.forward & regions.free & carries_data(graph, regions.region)
    live = is_data_flow[graph.edge_producer] & is_data_flow[graph.edge_consumer]
    pairs = np.stack([node[graph.edge_producer[live]], node[graph.edge_consumer[live]]], axis=1)
    readers: dict[int, list[int]] = collections.defaultdict(list)
    sources: dict[int, list[int]] = collections.defaultdict(list)
    for p, c in np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0).tolist():
        readers[p].append(c)
        sources[c].append(p)
    return readers, sources


def _is_branch(
    chain: Sequence[int],
    readers: Mapping[int, Sequence[int]],
    sources: Mapping[int, Sequence[int]],
) -> bool:
    before, after = sources.get(chain[0], ()), readers.get(chain[-1], ())
    starts_at_fork = not before or any(len(readers[s]) > 1 for s in before)
    return starts_at_fork and len(after) == 1 and len(sources[after[0]]) > 1
