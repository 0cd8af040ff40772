"""Regions: every contraction or lookup of a model with the small operations around it.

The forward part of a model is cut at its anchors: the operations that combine inputs with weights
(matrix products, convolutions, whole cells) or look rows up. Whatever is computed from an anchor,
up to the next anchor, belongs to its region; gradients already go with their forward operation.
"""

from __future__ import annotations

import dataclasses
import re

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import LOOKUPS, VARIABLES
from graph_passes.work import CONTRACTIONS

__all__ = [
    "Regions",
    "carries_data",
    "find_regions",
    "forward_operation",
    "weight_sources",
]

# Joins of independent data, which belong to what reads them and not to what they read.
_JOINS = frozenset(["Concat", "ConcatV2", "Pack"])
# Operations that hand a weight on, perhaps in another form.
_VIEWS = frozenset(["Identity", "ReadVariableOp", "Cast", "Transpose", "Reshape", "Enter"])
_GRADIENT_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/")
_GRADIENT_OF = re.compile(r"_grad(?:_\d+)?/")
_TAPE = "gradient_tape/"
# Of a gradient, but made before there is one: what a functional loop keeps for its gradient.
_KEEPS_VALUES = frozenset(["Const", "EmptyTensorList", "TensorListReserve"])


@dataclasses.dataclass(frozen=True, eq=False)
class Regions:
    """Regions of a graph, numbered by their anchor in topological order.

    Attributes:
        anchors: the anchor operation of each region.
        region: int32 [num_operations], the region of each operation, -1 for none.
        forward: bool [num_operations], true for needed operations that are no gradient or update.
        free: bool [num_operations], true for needed operations that share a colocation group
            neither with a variable nor with anything left alone.
        weights: per region, the variable or constant that its anchor reads, or None.
    """

    anchors: tuple[int, ...]
    region: np.ndarray
    forward: np.ndarray
    free: np.ndarray
    weights: tuple[int | None, ...]


def forward_operation(graph: OpGraph, operation: int) -> int | None:
    """Finds the operation whose gradient an operation is part of, told by name scopes.

    Args:
        graph: the graph.
        operation: one called "gradients/lm/MatMul_grad/MatMul" or
            "gradient_tape/lm/MatMul/MatMul_1", say.

    Returns:
        The forward operation; None where there is none.
    """
    name = graph.names[operation]
    scope = _GRADIENT_SCOPE.search(name)
    if scope:
        rest = name[scope.end() :]
        for end in _GRADIENT_OF.finditer(rest):
            found = graph.index.get(rest[: end.start()])
            if found is not None:
                return found
    elif _TAPE in name:
        rest = name.split(_TAPE, 1)[1]
        while "/" in rest:
            rest = rest.rsplit("/", 1)[0]
            if rest in graph.index:
                return graph.index[rest]
        # A tape names the scope only: for "TanhGrad" that is the "Tanh" it reads from.
        forward_type, is_gradient, _ = graph.type_of(operation).partition("Grad")
        for producer in graph.producers[operation] if is_gradient else ():
            if graph.type_of(producer).startswith(forward_type):
                return producer
    return None


def find_regions(graph: OpGraph, colocation: ColocationGroups) -> Regions:
    """Cuts the forward part of a step into regions.

    Args:
        graph: the graph.
        colocation: its colocation groups. Operations that share one with a variable, and those
            that are left alone, belong to no region.

    Returns:
        The regions.
    """
    holds_state = np.zeros(colocation.num_groups, bool)
    holds_state[colocation.group[graph.has_type(VARIABLES)]] = True
    holds_state |= colocation.pinned
    free = graph.needed & ~holds_state[colocation.group]
    forward = _forward(graph)

    # A lookup in a resource variable is tied to it by the handle; it anchors a region all the same.
    is_anchor = forward & graph.has_type(CONTRACTIONS) & free | forward & graph.has_type(LOOKUPS)
    is_anchor &= ~colocation.pinned[colocation.group]
    source = weight_sources(graph)
    lookups = is_anchor & graph.has_type(LOOKUPS)
    for i in np.flatnonzero(lookups).tolist():
        # Without weights it only picks from what was computed.
        if not graph.producers[i] or source[graph.producers[i][0]] is None:
            is_anchor[i] = False

    anchors = [i for i in graph.order.tolist() if is_anchor[i]]
    region = np.full(graph.num_operations, -1, np.int32)
    region[anchors] = np.arange(len(anchors), dtype=np.int32)
    _follow_anchors(graph, region, forward & free)
    _lead_to_anchors(graph, region, forward & free & ~_from_variables(graph, region))
    weights = []
    for anchor in anchors:
        found = (source[p] for p in graph.producers[anchor])
        weights.append(next((s for s in found if s is not None), None))
    return Regions(tuple(anchors), region, forward, free, tuple(weights))


def carries_data(graph: OpGraph, region: np.ndarray) -> np.ndarray:
    """Finds the operations whose value depends on more than variables and constants.

    Args:
        graph: the graph.
        region: int32 [num_operations], the region of each operation; what is in one carries data.

    Returns:
        bool [num_operations].
    """
    carries = (region >= 0).tolist()
    is_parameter = graph.has_type([*VARIABLES, "Const"]).tolist()
    producers = graph.producers
    for i in graph.order.tolist():
        if not carries[i] and not is_parameter[i]:
            carries[i] = not producers[i] or any(carries[p] for p in producers[i])
    return np.array(carries, bool)


def weight_sources(graph: OpGraph) -> list[int | None]:
    """Finds, for each operation, the variable whose value it hands on, or None.

    Args:
        graph: the graph.

    Returns:
        One operation number or None per operation; a variable hands on its own value.
    """
    source: list[int | None] = [None] * graph.num_operations
    is_variable, is_view = graph.has_type(VARIABLES), graph.has_type(_VIEWS)
    for i in graph.order[(is_variable | is_view)[graph.order]].tolist():
        if is_variable[i]:
            source[i] = i
        elif graph.producers[i]:
            source[i] = source[graph.producers[i][0]]
    return source


def _forward(graph: OpGraph) -> np.ndarray:
    """Finds needed operations neither in a gradient scope nor computed from one that is."""
    backward = np.zeros(graph.num_operations, bool)
    for i, name in enumerate(graph.names):
        if "gradient" in name and (_GRADIENT_SCOPE.search(name) or _TAPE in name):
            backward[i] = True
    gives = (backward & ~graph.has_type(_KEEPS_VALUES)).tolist()
    producers = graph.producers
    for i in graph.order[~backward[graph.order]].tolist():
        if any(gives[p] for p in producers[i]):
            backward[i] = gives[i] = True
    return graph.needed & ~backward


def _follow_anchors(graph: OpGraph, region: np.ndarray, eligible: np.ndarray) -> None:
    """Operations join the deepest region they read from."""
    depth: dict[int, int] = {}
    joins = (eligible & ~graph.has_type(_JOINS)).tolist()
    regions, producers = region.tolist(), graph.producers
    # How many anchors are on the longest path to each operation, and the region at its end.
    behind = [0] * graph.num_operations
    for i in graph.order.tolist():
        best, best_depth = -1, 0
        for p in producers[i]:
            best_depth = max(best_depth, behind[p])
            r = regions[p]
            if r >= 0 and (best < 0 or depth[r] >= depth[best]):
                best = r
        own = regions[i]
        if own >= 0:
            depth[own] = best_depth + 1
            behind[i] = best_depth + 1
            continue
        behind[i] = best_depth
        if joins[i]:
            regions[i] = best
    region[:] = regions


def _from_variables(graph: OpGraph, region: np.ndarray) -> np.ndarray:
    """Operations whose value depends on variables, and on no data: they stay with the variables."""
    found = graph.has_type(VARIABLES).tolist()
    producers = graph.producers
    for i in graph.order.tolist():
        found[i] = found[i] or any(found[p] for p in producers[i])
    return np.array(found, bool) & ~carries_data(graph, region)


def _lead_to_anchors(graph: OpGraph, region: np.ndarray, eligible: np.ndarray) -> None:
    """Joins to each region what only that region reads in the forward part."""
    consumers = graph.consumers
    for i in graph.order[::-1].tolist():
        if eligible[i] and region[i] < 0:
            readers = {int(region[c]) for c in consumers[i] if eligible[c]}
            if len(readers) == 1:
                region[i] = readers.pop()
