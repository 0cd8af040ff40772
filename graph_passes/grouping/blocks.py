"""Blocks: what each region is a part of, and which regions make up one block of a model."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.regions import Regions
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import LOOKUPS
from graph_passes.util.union_find import UnionFind
from graph_passes.work import CONTRACTIONS

__all__ = [
    "ATTENTION_STEP",
    "BRANCH",
    "EMBEDDING_LOOKUP",
    "LAYER",
    "RNN_CELL",
    "SOFTMAX_STEP",
    "Blocks",
    "find_blocks",
]

EMBEDDING_LOOKUP = "embedding_lookup"
RNN_CELL = "rnn_cell"
ATTENTION_STEP = "attention_step"
SOFTMAX_STEP = "softmax_step"
BRANCH = "branch"
LAYER = "layer"

_SOFTMAX = frozenset(["Softmax"])
_PREDICTIONS = frozenset(
    [
        "LogSoftmax",
        "SoftmaxCrossEntropyWithLogits",
        "SparseSoftmaxCrossEntropyWithLogits",
    ]
)
_GATES = frozenset(["Sigmoid", "Tanh"])
_CELLS = frozenset(["LSTMBlockCell", "BlockLSTM", "BlockLSTMV2", "GRUBlockCell"])


class Blocks:
    """Disjoint sets of regions, each of one kind."""

    def __init__(self, kinds: Sequence[str]) -> None:
        """Makes a block of every region, of these kinds."""
        self._sets = UnionFind(len(kinds))
        self._kinds = list(kinds)

    def find(self, region: int) -> int:
        """Finds the region that represents the block of a region."""
        return self._sets.find(region)

    def kind(self, region: int) -> str:
        """Returns the kind of a region's block."""
        return self._kinds[self.find(region)]

    def join(self, a: int, b: int, kind: str) -> None:
        """Joins the blocks of two regions into one of this kind."""
        self._kinds[self._sets.union(a, b)] = kind


def find_blocks(graph: OpGraph, regions: Regions) -> Blocks:
    """Finds lookups, cells, attention and prediction steps; all other regions are layers.

    Args:
        graph: the graph.
        regions: its regions.

    Returns:
        The blocks.
    """
    readers = _forward_readers(graph, regions)
    softmaxes: dict[int, list[int]] = collections.defaultdict(list)
    is_softmax = graph.has_type(_SOFTMAX) & regions.forward & (regions.region >= 0)
    for i in np.flatnonzero(is_softmax).tolist():
        softmaxes[int(regions.region[i])].append(i)
    # Where a softmax is multiplied with other data, it weighs that data.
    weighed = {r: _weighed_by(graph, regions, r, found) for r, found in softmaxes.items()}
    blocks = Blocks(_classify(graph, regions, readers, weighed))
    _join_products(graph, regions, readers, blocks)
    for r, products in weighed.items():
        if blocks.kind(r) != ATTENTION_STEP:
            continue
        for product in products:
            other = int(regions.region[product])
            # A product without weights of its own: scores times values.
            if other >= 0 and regions.weights[other] is None:
                blocks.join(r, other, ATTENTION_STEP)
    return blocks


def _forward_readers(graph: OpGraph, regions: Regions) -> list[set[int]]:
    """Finds, for each region, the other regions that read from it in the forward part."""
    readers: list[set[int]] = [set() for _ in regions.anchors]
    region, forward = regions.region, regions.forward
    p, c = graph.edge_producer, graph.edge_consumer
    crosses = forward[p] & forward[c] & (region[p] != region[c])
    crosses &= (region[p] >= 0) & (region[c] >= 0)
    for a, b in zip(region[p[crosses]].tolist(), region[c[crosses]].tolist(), strict=True):
        readers[a].add(b)
    return readers


def _weighed_by(graph: OpGraph, regions: Regions, r: int, softmaxes: list[int]) -> set[int]:
    """Finds the first products with other data that are reached from a region's softmaxes."""
    products = graph.has_type([*CONTRACTIONS, "Mul"])
    found: set[int] = set()
    reached = set(softmaxes)
    stack = list(softmaxes)
    while stack:
        for consumer in graph.consumers[stack.pop()]:
            if not regions.forward[consumer] or consumer in reached:
                continue
            reached.add(consumer)
            if products[consumer]:
                found.add(consumer)
            elif regions.region[consumer] == r:
                stack.append(consumer)
    return found


def _classify(
    graph: OpGraph,
    regions: Regions,
    readers: Sequence[set[int]],
    weighed: dict[int, set[int]],
) -> list[str]:
    """Tells the kind of each region from the operations in its forward part."""
    contents: list[set[str]] = [set() for _ in regions.anchors]
    for i in np.flatnonzero((regions.region >= 0) & regions.forward).tolist():
        contents[regions.region[i]].add(graph.type_of(i))
    gated = {w for w, has in zip(regions.weights, contents, strict=True) if has & _GATES}
    recurrent = _recurrent_weights(regions, readers, gated)
    kinds = []
    for r, anchor in enumerate(regions.anchors):
        has = contents[r]
        if graph.type_of(anchor) in LOOKUPS:
            kinds.append(EMBEDDING_LOOKUP)
        elif has & _PREDICTIONS or (has & _SOFTMAX and not weighed[r]):
            kinds.append(SOFTMAX_STEP)
        elif has & _SOFTMAX:
            kinds.append(ATTENTION_STEP)
        elif has & _CELLS or (
            has & _GATES and (regions.weights[r] in recurrent or ("Split" in has and has >= _GATES))
        ):
            kinds.append(RNN_CELL)
        else:
            kinds.append(LAYER)
    return kinds


def _recurrent_weights(
    regions: Regions, readers: Sequence[set[int]], candidates: set[int | None]
) -> set[int]:
    """Finds the candidates that are applied again to what came of them."""
    uses: dict[int, list[int]] = collections.defaultdict(list)
    for r, weight in enumerate(regions.weights):
        if weight is not None and weight in candidates:
            uses[weight].append(r)
    recurrent = set()
    for weight, (start, *others) in uses.items():
        again = set(others)
        reached = {start}
        stack = [start] if others else []
        while stack and weight not in recurrent:
            for reader in readers[stack.pop()] - reached:
                reached.add(reader)
                stack.append(reader)
                if reader in again:
                    recurrent.add(weight)
    return recurrent


def _scope(name: str) -> str:
    return name.rsplit("/", 1)[0] if "/" in name else ""


def _join_products(
    graph: OpGraph, regions: Regions, readers: Sequence[set[int]], blocks: Blocks
) -> None:
    """Joins the products of one cell, or of one attention step.

    These are products of the same name scope of which one feeds the other and nothing else, at
    every step: at the last step of an unrolled model, more products feed one other only.
    """
    feeds: dict[tuple[str, int], list[tuple[int, int | None]]] = collections.defaultdict(list)
    for r, anchor in enumerate(regions.anchors):
        weight, fed = regions.weights[r], None
        if len(readers[r]) == 1:
            (reader,) = readers[r]
            feeder_kinds = {RNN_CELL: (RNN_CELL, LAYER), ATTENTION_STEP: (LAYER,)}
            same_scope = _scope(graph.names[anchor]) == _scope(graph.names[regions.anchors[reader]])
            # The same weights again mean the next step of the cell, not the same step.
            if (
                same_scope
                and blocks.kind(r) in feeder_kinds.get(blocks.kind(reader), ())
                and (weight is None or weight != regions.weights[reader])
            ):
                fed = reader
        key = ("region", r) if weight is None else ("weight", weight)
        feeds[key].append((r, fed))
    for steps in feeds.values():
        if all(fed is not None for _, fed in steps):
            for r, fed in steps:
                assert fed is not None
                blocks.join(r, fed, blocks.kind(fed))
