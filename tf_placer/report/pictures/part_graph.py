"""Layout of a model that is not unrolled: a graph of its parts, from left to right."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import OperationKinds, describe_scopes, model_scopes
from tf_placer.report.pictures.drawing import Cell, Drawing

__all__ = ["lay_out_part_graph"]

# A model of more parts is drawn by layer.
_MAX_PARTS = 300
# A cycle of parts is drawn as one part, unless that has a larger share of the time.
_MAX_CYCLE_SHARE = 0.5
_BEGIN_QUANTILE = 0.25
# A part with a smaller share of the time is left out; its neighbors become connected.
_LEAST_SHARE = 1e-4
# Longer chains continue in the row below.
_MAX_COLUMNS = 24
_MAX_COLUMN_NAMES = 2
# A chain with fewer columns has room for the name of each part, after its scopes down to a depth.
_SHORT_CHAIN = 8
_MAX_NAME_DEPTH = 3
# The columns of a long chain are named after inner scopes if an outer one has this share of them.
_LEAST_OUTER_SHARE = 0.7
# Cells between rows of a continued chain, for the names of the columns.
_ROW_GAP = 1.3


def lay_out_part_graph(problem: PlacementProblem, kinds: OperationKinds) -> Drawing:
    """Lays out blocks and branches as in ColocRL, figure 5, and any other graph.

    A part is a coarse group, such as a branch of convolutions, or a layer if there would be too
    many parts. Its column is its longest distance from the inputs in the forward pass, so that
    parts that may run at the same time are in one column.
    """
    of_operations = kinds.clusters
    if len(np.unique(of_operations)) > _MAX_PARTS:
        of_operations = kinds.layers
    graph = _forward_graph(problem, kinds, of_operations)
    generations = enumerate(nx.topological_generations(graph))
    depths = {part: depth for depth, parts in generations for part in parts}
    columns: dict[int, list[int]] = collections.defaultdict(list)
    for part, depth in depths.items():
        columns[depth].append(part)
    places = _order_columns(graph, columns)
    tallest = max((len(parts) for parts in columns.values()), default=1)
    row_height = tallest + _ROW_GAP
    cells: list[Cell] = []
    index: dict[int, int] = {}
    for depth, parts in sorted(columns.items()):
        top = (depth // _MAX_COLUMNS) * row_height + (tallest - len(parts)) / 2
        for part in parts:
            index[part] = len(cells)
            cells.append(Cell(part, 1.35 * (depth % _MAX_COLUMNS), top + places[part]))
    # A cycle of parts is one node of the condensed graph.
    parts_of = {member: part for part, data in graph.nodes(data=True) for member in data["members"]}
    depth_count = len(columns)
    return Drawing(
        form="graph",
        parts=np.array([parts_of.get(part, -1) for part in of_operations.tolist()], np.int64),
        cells=tuple(cells),
        edges=tuple(
            (index[a], index[b])
            for a, b in graph.edges
            if depths[a] // _MAX_COLUMNS == depths[b] // _MAX_COLUMNS
        ),
        rows=(),
        columns=_labels(problem, kinds, of_operations, parts_of, depths, row_height),
        width=1.35 * min(depth_count, _MAX_COLUMNS),
        height=row_height * (-(-depth_count // _MAX_COLUMNS)) - _ROW_GAP,
    )


def _forward_graph(
    problem: PlacementProblem, kinds: OperationKinds, of_operations: np.ndarray
) -> nx.DiGraph:
    """Makes the acyclic graph of parts that take time; nodes have their `members`."""
    secs = problem.compute_secs.min(axis=1)
    forward = ~kinds.backward
    count = int(of_operations.max()) + 1
    part_secs = np.bincount(of_operations, secs, count)
    graph = nx.DiGraph()
    graph.add_nodes_from(np.unique(of_operations[forward]).tolist())
    before, after = problem.edges.T
    both = forward[before] & forward[after]
    pairs = np.stack([of_operations[before[both]], of_operations[after[both]]], axis=1)
    pairs = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
    graph.add_edges_from(pairs.tolist())
    _open_large_cycles(problem, graph, part_secs, np.where(forward, of_operations, -1))
    condensed = nx.condensation(graph)
    least_secs = _LEAST_SHARE * float(part_secs.sum())
    for node in list(nx.topological_sort(condensed)):
        members = condensed.nodes[node]["members"]
        if sum(part_secs[member] for member in members) < least_secs:
            ways = [(a, b) for a in condensed.pred[node] for b in condensed.succ[node]]
            condensed.remove_node(node)
            condensed.add_edges_from(ways)
    # Leave out edges that a longer path implies.
    reduced = nx.transitive_reduction(condensed)
    reduced.add_nodes_from(condensed.nodes(data=True))
    return reduced


def _open_large_cycles(
    problem: PlacementProblem, graph: nx.DiGraph, part_secs: np.ndarray, parts: np.ndarray
) -> None:
    """Removes the edges to earlier parts from cycles that take most of the time.

    An output that shares the variables of the embedding, and so its part, closes a cycle around the
    whole model.

    Args:
        problem: the problem.
        graph: the parts.
        part_secs: float64 [num_parts], the time of each part.
        parts: int [num_operations], the part of each operation, -1 in the backward pass.
    """
    places = np.empty(problem.num_operations, np.int64)
    places[problem.order] = np.arange(problem.num_operations)
    for members in list(nx.strongly_connected_components(graph)):
        most_secs = _MAX_CYCLE_SHARE * part_secs.sum()
        if len(members) > 1 and part_secs[list(members)].sum() > most_secs:
            # A quantile tells where a part begins, even if constants of it come much earlier.
            place = {
                part: np.quantile(places[parts == part], _BEGIN_QUANTILE, method="lower")
                for part in members
            }
            edges = graph.subgraph(members).edges
            graph.remove_edges_from([(a, b) for a, b in edges if place[a] > place[b]])


def _order_columns(graph: nx.DiGraph, columns: dict[int, list[int]]) -> dict[int, int]:
    """Orders the parts of each column by the positions of their inputs."""
    places: dict[int, int] = {}

    def place(part: int) -> tuple[float, int]:
        before = [places[each] for each in graph.pred[part]]
        return (float(np.mean(before)) if before else 0.0, part)

    for _, parts in sorted(columns.items()):
        parts.sort(key=place)
        places |= {part: position for position, part in enumerate(parts)}
    return places


def _labels(
    problem: PlacementProblem,
    kinds: OperationKinds,
    of_operations: np.ndarray,
    parts_of: dict[int, int],
    depths: dict[int, int],
    row_height: float,
) -> tuple[tuple[float, float, str], ...]:
    """Names the columns after the scopes of their operations, else after the longest kind."""
    scopes: dict[int, dict[int, list[str]]] = collections.defaultdict(
        lambda: collections.defaultdict(list)
    )
    of_names = model_scopes(problem, kinds.backward)
    longest: dict[int, tuple[float, str]] = {}
    secs = problem.compute_secs.min(axis=1).tolist()
    for i, part in enumerate(of_operations.tolist()):
        node = parts_of.get(part)
        if kinds.backward[i] or node is None or node not in depths:
            continue
        longest[node] = max(longest.get(node, (0.0, "")), (secs[i], kinds.kinds[i]))
        if of_names[i]:
            scopes[depths[node]][node].append(of_names[i])
    named = set(scopes)
    for node, (_, kind) in longest.items():
        if depths[node] not in named:
            scopes[depths[node]][node].append(kind)
    is_short = max(depths.values(), default=0) < _SHORT_CHAIN
    least_depth = 1 if is_short else _find_name_depth([*scopes.values()])
    max_depth = _MAX_NAME_DEPTH if is_short else least_depth
    labels, last = [], None
    for depth, of_parts in sorted(scopes.items()):
        named_parts = _name_parts(list(of_parts.values()), least_depth, max_depth)
        names = list(dict.fromkeys(named_parts))
        others = len(names) - _MAX_COLUMN_NAMES
        name = ", ".join(names[:_MAX_COLUMN_NAMES]) + (f" +{others}" if others > 0 else "")
        if name != last or depth % _MAX_COLUMNS == 0 or is_short:
            x = 1.35 * (depth % _MAX_COLUMNS) + 0.45
            labels.append((x, (depth // _MAX_COLUMNS) * row_height, name))
        last = name
    return tuple(labels)


def _find_name_depth(columns: Sequence[Mapping[int, list[str]]]) -> int:
    """Finds the depth of the scopes that tell the columns of a long chain apart."""
    for depth in range(1, _MAX_NAME_DEPTH):
        names = [tuple(_name_parts([*parts.values()], depth, depth)) for parts in columns]
        [(_, count)] = collections.Counter(names).most_common(1)
        if count < _LEAST_OUTER_SHARE * len(names):
            return depth
    return _MAX_NAME_DEPTH


def _name_parts(scopes: Sequence[Sequence[str]], least_depth: int, max_depth: int) -> list[str]:
    """Names the parts of a column, after inner scopes if they share the outer ones.

    Args:
        scopes: for each part the scopes of its operations.
        least_depth: the least number of scopes around a name, itself included.
        max_depth: the number of scopes around the innermost that names a part, itself included.
    """
    names: list[str] = []
    for depth in range(least_depth, max_depth + 1):
        outer = [["/".join(scope.split("/")[:depth]) for scope in each] for each in scopes]
        names = [describe_scopes(each).rpartition("/")[2] for each in outer]
        if len(set(names)) == len(names):
            break
    return names
