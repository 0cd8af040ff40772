"""Sets of regions: the cells, lookups, attention steps, predictions and layers of a model."""

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
    "RegionSets",
    "merge_regions",
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


class RegionSets:
    """Disjoint sets of regions, each of one kind; every set becomes a sealed group."""

    def __init__(self, kinds: Sequence[str]) -> None:
        """Makes a set of each region, with its kind."""
        self._sets = UnionFind(len(kinds))
        self._kinds = list(kinds)

    def find(self, region: int) -> int:
        """Finds the region that represents the set of a region."""
        return self._sets.find(region)

    def kind(self, region: int) -> str:
        """Returns the kind of a region's set."""
        return self._kinds[self.find(region)]

    def join(self, a: int, b: int, kind: str) -> None:
        """Joins the sets of two regions into one of a kind."""
        self._kinds[self._sets.union(a, b)] = kind


def merge_regions(graph: OpGraph, regions: Regions) -> RegionSets:
    """Finds lookups, cells, attention and prediction steps; all other regions are layers.

    Args:
        graph: the graph.
        regions: its regions.

    Returns:
        The sets of regions.
    """
    readers = _find_forward_readers(graph, regions)
    softmaxes: dict[int, list[int]] = collections.defaultdict(list)
    is_softmax = graph.has_type(_SOFTMAX) & regions.forward & (regions.region >= 0)
    for i in np.flatnonzero(is_softmax).tolist():
        softmaxes[int(regions.region[i])].append(i)
    # A softmax that is multiplied with other data holds the weights of an attention.
    weighted_products = {
        r: _find_weighted_products(graph, regions, r, found) for r, found in softmaxes.items()
    }
    region_sets = RegionSets(_classify(graph, regions, readers, weighted_products))
    _join_products(graph, regions, readers, region_sets)
    for r, products in weighted_products.items():
        if region_sets.kind(r) != ATTENTION_STEP:
            continue
        for product in products:
            other = int(regions.region[product])
            # A product without variables is that of scores and values.
            if other >= 0 and regions.weights[other] is None:
                region_sets.join(r, other, ATTENTION_STEP)
    return region_sets


def _find_forward_readers(graph: OpGraph, regions: Regions) -> list[set[int]]:
    """Finds for each region the other regions that read from it in the forward part."""
    readers: list[set[int]] = [set() for _ in regions.anchors]
    region, forward = regions.region, regions.forward
    p, c = graph.edge_producer, graph.edge_consumer
    crosses = forward[p] & forward[c] & (region[p] != region[c])
    crosses &= (region[p] >= 0) & (region[c] >= 0)
    for a, b in zip(region[p[crosses]].tolist(), region[c[crosses]].tolist(), strict=True):
        readers[a].add(b)
    return readers


def _find_weighted_products(
    graph: OpGraph, regions: Regions, r: int, softmaxes: list[int]
) -> set[int]:
    """Finds the first products with other data behind the softmaxes of a region."""
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
    weighted_products: dict[int, set[int]],
) -> list[str]:
    """Classifies each region by the operations in its forward part."""
    region_types: list[set[str]] = [set() for _ in regions.anchors]
    for i in np.flatnonzero((regions.region >= 0) & regions.forward).tolist():
        region_types[regions.region[i]].add(graph.type_of(i))
    gated = {w for w, types in zip(regions.weights, region_types, strict=True) if types & _GATES}
    recurrent = _find_recurrent_weights(regions, readers, gated)
    kinds = []
    for r, anchor in enumerate(regions.anchors):
        types = region_types[r]
        if graph.type_of(anchor) in LOOKUPS:
            kinds.append(EMBEDDING_LOOKUP)
        elif types & _PREDICTIONS or (types & _SOFTMAX and not weighted_products[r]):
            kinds.append(SOFTMAX_STEP)
        elif types & _SOFTMAX:
            kinds.append(ATTENTION_STEP)
        elif types & _CELLS or (
            types & _GATES
            and (regions.weights[r] in recurrent or ("Split" in types and types >= _GATES))
        ):
            kinds.append(RNN_CELL)
        else:
            kinds.append(LAYER)
    return kinds


def _find_recurrent_weights(
    regions: Regions, readers: Sequence[set[int]], candidates: set[int | None]
) -> set[int]:
    """Finds the candidate weights that are applied again to their own result."""
    uses: dict[int, list[int]] = collections.defaultdict(list)
    for r, weight in enumerate(regions.weights):
        if weight is not None and weight in candidates:
            uses[weight].append(r)
    recurrent = set()
    for weight, (start, *others) in uses.items():
        later_uses = set(others)
        reached = {start}
        stack = [start] if others else []
        while stack and weight not in recurrent:
            for reader in readers[stack.pop()] - reached:
                reached.add(reader)
                stack.append(reader)
                if reader in later_uses:
                    recurrent.add(weight)
    return recurrent


def _find_scope(name: str) -> str:
    return name.rsplit("/", 1)[0] if "/" in name else ""


def _join_products(
    graph: OpGraph, regions: Regions, readers: Sequence[set[int]], region_sets: RegionSets
) -> None:
    """Joins the products of one cell, or of one attention step.

    These are products of the same name scope, one of which feeds only the other in every step of an
    unrolled model. The last step alone does not suffice, because there more products feed only one
    other.
    """
    links_by_weight: dict[tuple[str, int], list[tuple[int, int | None]]] = collections.defaultdict(
        list
    )
    for r, anchor in enumerate(regions.anchors):
        weight, consumer = regions.weights[r], None
        if len(readers[r]) == 1:
            (reader,) = readers[r]
            feeder_kinds = {RNN_CELL: (RNN_CELL, LAYER), ATTENTION_STEP: (LAYER,)}
            same_scope = _find_scope(graph.names[anchor]) == _find_scope(
                graph.names[regions.anchors[reader]]
            )
            # A product with the same weights belongs to the next step of the cell.
            if (
                same_scope
                and region_sets.kind(r) in feeder_kinds.get(region_sets.kind(reader), ())
                and (weight is None or weight != regions.weights[reader])
            ):
                consumer = reader
        key = ("region", r) if weight is None else ("weight", weight)
        links_by_weight[key].append((r, consumer))
    for steps in links_by_weight.values():
        if all(consumer is not None for _, consumer in steps):
            for r, consumer in steps:
                assert consumer is not None
                region_sets.join(r, consumer, region_sets.kind(consumer))
