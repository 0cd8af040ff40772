"""Branches: chains of layers between a fork and a join."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import numpy as np

from graph_passes.grouping.blocks import BRANCH, LAYER, Blocks
from graph_passes.grouping.regions import Regions, carries_data
from graph_passes.op_graph import OpGraph

__all__ = ["join_branches"]


def join_branches(
    graph: OpGraph, regions: Regions, blocks: Blocks, work: np.ndarray, max_work: float
) -> None:
    """Joins the layers of each branch.

    Args:
        graph: the graph.
        regions: its regions.
        blocks: its blocks; chains of layers between a fork and a join become branches.
        work: float64 [num_operations], the work of each.
        max_work: what one branch may hold; a heavier one is cut into several.
    """
    count = len(regions.anchors)
    readers, sources = _block_graph(graph, regions, blocks)
    load = [0.0] * count
    in_region = np.flatnonzero(regions.region >= 0)
    for r, flops in zip(regions.region[in_region].tolist(), work[in_region].tolist(), strict=True):
        load[blocks.find(r)] += flops
    is_layer = [blocks.find(b) == b and blocks.kind(b) == LAYER for b in range(count)]

    def follower(b: int) -> int | None:
        """Finds the next layer of a chain, if there is just one way on and one way in."""
        if len(readers.get(b, ())) == 1:
            (n,) = readers[b]
            if n < count and is_layer[n] and len(sources[n]) == 1:
                return n
        return None

    followed = {follower(b) for b in range(count) if is_layer[b]}
    chains = []
    for head in range(count):
        if is_layer[head] and head not in followed:
            chain = [head]
            while (n := follower(chain[-1])) is not None:
                chain.append(n)
            if _is_branch(chain, readers, sources):
                chains.append(chain)
    for chain in chains:
        part, held = chain[0], 0.0
        for b in chain:
            if held and held + load[b] > max_work:
                part, held = b, 0.0
            held += load[b]
            blocks.join(part, b, BRANCH)


def _block_graph(
    graph: OpGraph, regions: Regions, blocks: Blocks
) -> tuple[Mapping[int, Sequence[int]], Mapping[int, Sequence[int]]]:
    """Finds who reads from each block and whom it reads from.

    Nodes are blocks and, with numbers above theirs, forward operations outside all of them.
    """
    count = len(regions.anchors)
    block = np.array([blocks.find(r) for r in range(count)], np.int64)
    outside = count + np.arange(graph.num_operations)
    node = np.where(regions.region >= 0, block[regions.region], outside)
    # Weights say nothing about where data flows, and neither do updates of running averages.
    flows = regions.forward & regions.free & carries_data(graph, regions.region)
    live = flows[graph.edge_producer] & flows[graph.edge_consumer]
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
