"""Regions: each contraction or lookup of a model with the small operations around it.

The forward part of a model is split at its anchors: the operations that multiply inputs and weights
(matrix products, convolutions, whole cells) or look up rows. All operations computed from an
anchor, up to the next anchor, belong to its region. Gradients are in the groups of their forward
operations already.
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
    "find_forward_operation",
    "find_regions",
    "find_weight_sources",
]

# Joins of independent data, which belong to the region of their consumer, not of their producers.
_JOINS = frozenset(["Concat", "ConcatV2", "Pack"])
# Operations that forward a weight, possibly in another form.
_VIEWS = frozenset(["Identity", "ReadVariableOp", "Cast", "Transpose", "Reshape", "Enter"])
_GRADIENT_SCOPE = re.compile(r"(?:^|/)gradients(?:_\d+)?/")
_GRADIENT_OF = re.compile(r"_grad(?:_\d+)?/")
_TAPE = "gradient_tape/"
# Operations in the scope of a gradient that belong to the forward part: a functional loop stores
# values for its gradient in them.
_FORWARD_STORES = frozenset(["Const", "EmptyTensorList", "TensorListReserve"])


@dataclasses.dataclass(frozen=True, eq=False)
class Regions:
    """Regions of a graph, numbered by their anchor in topological order.

    Attributes:
        anchors: the anchor operation of each region.
        region: int32 [num_operations], the region of each operation, -1 for none.
        forward: bool [num_operations], true for needed operations that are no gradient or update.
        free: bool [num_operations], true for needed operations whose colocation group has no
            variable and is not pinned.
        weights: the variable that the anchor of each region reads, or None.
    """

    anchors: tuple[int, ...]
    region: np.ndarray
    forward: np.ndarray
    free: np.ndarray
    weights: tuple[int | None, ...]


def find_forward_operation(graph: OpGraph, operation: int) -> int | None:
    """Finds the forward operation of a gradient operation by name scopes.

    Args:
        graph: the graph.
        operation: the operation, for example one named "gradients/lm/MatMul_grad/MatMul" or
            "gradient_tape/lm/MatMul/MatMul_1".

    Returns:
        The forward operation; None for operations of no gradient.
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
        # A tape keeps only the scope: the forward operation of "TanhGrad" is the "Tanh" it reads.
        forward_type, is_gradient, _ = graph.type_of(operation).partition("Grad")
        for producer in graph.producers[operation] if is_gradient else ():
            if graph.type_of(producer).startswith(forward_type):
                return producer
    return None


def find_regions(graph: OpGraph, colocation: ColocationGroups) -> Regions:
    """Splits the forward part of a step into regions.

    Args:
        graph: the graph.
        colocation: its colocation groups. Pinned operations, and operations that share a colocation
            group with a variable, belong to no region.

    Returns:
        The regions.
    """
    holds_state = np.zeros(colocation.num_groups, bool)
    holds_state[colocation.group[graph.has_type(VARIABLES)]] = True
    holds_state |= colocation.pinned
    free = graph.needed & ~holds_state[colocation.group]
    forward = _find_forward(graph)

    # Lookups in resource variables are anchors although they share a colocation group with them.
    is_anchor = forward & graph.has_type(CONTRACTIONS) & free | forward & graph.has_type(LOOKUPS)
    is_anchor &= ~colocation.pinned[colocation.group]
    source = find_weight_sources(graph)
    lookups = is_anchor & graph.has_type(LOOKUPS)
    for i in np.flatnonzero(lookups).tolist():
        # A lookup without weights only selects from computed data.
        if not graph.producers[i] or source[graph.producers[i][0]] is None:
            is_anchor[i] = False

    anchors = [i for i in graph.order.tolist() if is_anchor[i]]
    region = np.full(graph.num_operations, -1, np.int32)
    region[anchors] = np.arange(len(anchors), dtype=np.int32)
    _extend_to_consumers(graph, region, forward & free)
    _extend_to_producers(graph, region, forward & free & ~_find_parameters(graph, region))
    weights = []
    for anchor in anchors:
        found = (source[p] for p in graph.producers[anchor])
        weights.append(next((s for s in found if s is not None), None))
    return Regions(tuple(anchors), region, forward, free, tuple(weights))


def carries_data(graph: OpGraph, region: np.ndarray) -> np.ndarray:
    """Finds the operations whose value depends on more than variables and constants.

    Args:
        graph: the graph.
        region: int32 [num_operations], the region of each operation; all operations in regions
            carry data.

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


def find_weight_sources(graph: OpGraph) -> list[int | None]:
    """Finds the variable whose value each operation forwards.

    Args:
        graph: the graph.

    Returns:
        A variable or None per operation; variables forward their own value.
    """
    source: list[int | None] = [None] * graph.num_operations
    is_variable, is_view = graph.has_type(VARIABLES), graph.has_type(_VIEWS)
    for i in graph.order[(is_variable | is_view)[graph.order]].tolist():
        if is_variable[i]:
            source[i] = i
        elif graph.producers[i]:
            source[i] = source[graph.producers[i][0]]
    return source


def _find_forward(graph: OpGraph) -> np.ndarray:
    """Finds the needed operations that are not in a gradient scope nor computed from one."""
    backward = np.zeros(graph.num_operations, bool)
    for i, name in enumerate(graph.names):
        if "gradient" in name and (_GRADIENT_SCOPE.search(name) or _TAPE in name):
            backward[i] = True
    is_gradient_source = (backward & ~graph.has_type(_FORWARD_STORES)).tolist()
    producers = graph.producers
    for i in graph.order[~backward[graph.order]].tolist():
        if any(is_gradient_source[p] for p in producers[i]):
            backward[i] = is_gradient_source[i] = True
    return graph.needed & ~backward


def _extend_to_consumers(graph: OpGraph, region: np.ndarray, eligible: np.ndarray) -> None:
    """Extends each region to operations for which it is the deepest region that they read from."""
    depth: dict[int, int] = {}
    joins = (eligible & ~graph.has_type(_JOINS)).tolist()
    regions, producers = region.tolist(), graph.producers
    # The number of anchors on the longest path to each operation.
    num_anchors = [0] * graph.num_operations
    for i in graph.order.tolist():
        best, best_depth = -1, 0
        for p in producers[i]:
            best_depth = max(best_depth, num_anchors[p])
            r = regions[p]
            if r >= 0 and (best < 0 or depth[r] >= depth[best]):
                best = r
        own = regions[i]
        if own >= 0:
            depth[own] = best_depth + 1
            num_anchors[i] = best_depth + 1
            continue
        num_anchors[i] = best_depth
        if joins[i]:
            regions[i] = best
    region[:] = regions


def _find_parameters(graph: OpGraph, region: np.ndarray) -> np.ndarray:
    """Finds operations that depend on variables but not on data, which stay with the variables."""
    found = graph.has_type(VARIABLES).tolist()
    producers = graph.producers
    for i in graph.order.tolist():
        found[i] = found[i] or any(found[p] for p in producers[i])
    return np.array(found, bool) & ~carries_data(graph, region)


def _extend_to_producers(graph: OpGraph, region: np.ndarray, eligible: np.ndarray) -> None:
    """Extends each region to forward operations that only this region reads."""
    consumers = graph.consumers
    for i in graph.order[::-1].tolist():
        if eligible[i] and region[i] < 0:
            readers = {int(region[c]) for c in consumers[i] if eligible[c]}
            if len(readers) == 1:
                region[i] = readers.pop()
