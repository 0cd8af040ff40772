"""Layout of a model that is not unrolled: a graph of its parts, from left to right."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterable, Sequence

import networkx as nx
import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import OperationKinds, describe_scopes, model_scopes
from tf_placer.report.pictures.drawing import Cell, Drawing

__all__ = ["COLUMN_WIDTH", "lay_out_part_graph"]

COLUMN_WIDTH = 1.35
"""The distance of columns in cells."""

# A model of more parts is drawn by layer.
_MAX_PARTS = 300
# A part with a smaller share of the time is left out; its neighbors become connected.
_LEAST_SHARE = 1e-4
# Longer chains continue in the row below.
_MAX_COLUMNS = 24
_MAX_COLUMN_NAMES = 2
# More cells have no names of their own, which take time to draw.
_MAX_NAMED_CELLS = 150
# The distance of cells above each other, without and with names between them.
_PITCH, _NAMED_PITCH = 1.0, 1.25
# A chain with fewer columns has room for the name of each part, after its scopes down to a depth.
_SHORT_CHAIN = 8
_MAX_NAME_DEPTH = 3
# Inner scopes name the columns if one outer scope would name a larger share of them.
_MAX_NAME_SHARE = 0.5
# Cells between rows of a continued chain, and those that a character of a slanted name adds.
_ROW_GAP = 0.5
_CHARACTER_CELLS = 0.07


def lay_out_part_graph(problem: PlacementProblem, kinds: OperationKinds) -> Drawing:
    """Lays out blocks and branches as in ColocRL, figure 5, and any other graph.

    A part is a coarse group, such as a branch of convolutions, or a layer if there would be too
    many parts, and in a Keras model. Its column is its longest distance from the inputs in the
    forward pass, so that parts that may run at the same time are in one column.
    """
    of_operations = _choose_parts(kinds)
    graph = _forward_graph(problem, kinds, of_operations)
    generations = enumerate(nx.topological_generations(graph))
    depths = {part: depth for depth, parts in generations for part in parts}
    columns: dict[int, list[int]] = collections.defaultdict(list)
    for part, depth in depths.items():
        columns[depth].append(part)
    places = _order_columns(graph, columns)
    heights: dict[int, int] = collections.defaultdict(int)
    for depth, parts in columns.items():
        row = depth // _MAX_COLUMNS
        heights[row] = max(heights[row], len(parts))
    # A cycle of parts is one node of the condensed graph.
    parts_of = {member: part for part, data in graph.nodes(data=True) for member in data["members"]}
    names, of_cells = _name_columns(problem, kinds, of_operations, parts_of, depths, places)
    pitch = _NAMED_PITCH if of_cells else _PITCH
    # The upper side of each row.
    tops = [0.0]
    for row, height in sorted(heights.items()):
        below = [len(name) for depth, name in names.items() if depth // _MAX_COLUMNS == row + 1]
        tops.append(tops[-1] + pitch * height + _ROW_GAP + _CHARACTER_CELLS * max(below, default=0))
    last_row = max(heights, default=0)
    cells: list[Cell] = []
    index: dict[int, int] = {}
    for depth, parts in sorted(columns.items()):
        row = depth // _MAX_COLUMNS
        top = tops[row] + pitch * (heights[row] - len(parts)) / 2
        for part in parts:
            index[part] = len(cells)
            cells.append(
                Cell(part, COLUMN_WIDTH * (depth % _MAX_COLUMNS), top + pitch * places[part])
            )
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
        columns=tuple(
            (COLUMN_WIDTH * (depth % _MAX_COLUMNS) + 0.45, tops[depth // _MAX_COLUMNS], name)
            for depth, name in names.items()
        ),
        width=COLUMN_WIDTH * min(depth_count, _MAX_COLUMNS),
        height=max(tops[last_row] + pitch * heights.get(last_row, 0), 1.0),
        names=tuple(
            (cell.x + cell.width / 2, cell.y, of_cells[cell.number])
            for cell in cells
            if cell.number in of_cells
        ),
    )


def _choose_parts(kinds: OperationKinds) -> np.ndarray:
    """Chooses the part of each operation, int [num_operations]; see `lay_out_part_graph`."""
    # People know a Keras model by its layers, whose names they see in its summary.
    choices = [kinds.clusters, kinds.layers]
    if kinds.is_keras:
        choices.reverse()
    return next((each for each in choices if len(np.unique(each)) <= _MAX_PARTS), kinds.layers)


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


def _name_columns(
    problem: PlacementProblem,
    kinds: OperationKinds,
    of_operations: np.ndarray,
    parts_of: dict[int, int],
    depths: dict[int, int],
    places: dict[int, int],
) -> tuple[dict[int, str], dict[int, str]]:
    """Names the columns after the scopes of their operations, else after the longest kind.

    Returns:
        The names by depth, without those that are the same as the one before; or the names by part,
        if these tell most parts above each other apart, and are not too many.
    """
    scopes: dict[int, dict[int, list[tuple[str, float]]]] = collections.defaultdict(
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
            scopes[depths[node]][node].append((of_names[i], secs[i]))
    named = set(scopes)
    for node, (_, kind) in longest.items():
        if depths[node] not in named:
            scopes[depths[node]][node].append((kind, 1.0))
    is_short = max(depths.values(), default=0) < _SHORT_CHAIN
    names: dict[int, str] = {}
    of_columns: dict[int, dict[int, str]] = {}
    for least_depth in range(1, _MAX_NAME_DEPTH + 1):
        name_depths = range(least_depth, (_MAX_NAME_DEPTH if is_short else least_depth) + 1)
        of_columns = {}
        for depth, of_parts in sorted(scopes.items()):
            nodes = sorted(of_parts, key=places.__getitem__)
            found = _name_parts([of_parts[node] for node in nodes], name_depths)
            of_columns[depth] = dict(zip(nodes, found, strict=True))
        every = itertools.chain.from_iterable(each.values() for each in of_columns.values())
        short = _shorten_names(set(every))
        of_columns = {
            depth: {node: short[name] for node, name in of_parts.items()}
            for depth, of_parts in of_columns.items()
        }
        names = {
            depth: _name_column([*of_parts.values()]) for depth, of_parts in of_columns.items()
        }
        most = collections.Counter(names.values()).most_common(1)
        if not most or most[0][1] <= _MAX_NAME_SHARE * len(names):
            break
    # True for columns whose parts have names that tell them apart.
    tells = [len({*each.values()}) == len(each) for each in of_columns.values() if len(each) > 1]
    of_cells = {node: name for of_column in of_columns.values() for node, name in of_column.items()}
    if 2 * sum(tells) > len(tells) and len(of_cells) <= _MAX_NAMED_CELLS:
        return {}, of_cells
    return {
        depth: name
        for depth, name in names.items()
        if name != names.get(depth - 1) or depth % _MAX_COLUMNS == 0 or is_short
    }, {}


def _name_column(of_parts: Sequence[str]) -> str:
    """Names a column after its parts."""
    names = list(dict.fromkeys(of_parts))
    others = len(names) - _MAX_COLUMN_NAMES
    return ", ".join(names[:_MAX_COLUMN_NAMES]) + (f" +{others}" if others > 0 else "")


def _shorten_names(names: Iterable[str]) -> dict[str, str]:
    """Shortens scopes to their last part, or the last two where others have the same last one."""
    lasts = {name: name.rpartition("/")[2] for name in names}
    counts = collections.Counter(lasts.values())
    return {
        name: last if counts[last] == 1 else "/".join(name.split("/")[-2:])
        for name, last in lasts.items()
    }


def _name_parts(
    scopes: Sequence[Sequence[tuple[str, float]]], name_depths: Iterable[int]
) -> list[str]:
    """Names the parts of a column, after inner scopes if they share the outer ones.

    Args:
        scopes: for each part the scopes and times of its operations.
        name_depths: the numbers of outer scopes to try, of which the innermost names a part.

    Returns:
        The scope of each part.
    """
    names: list[str] = []
    for depth in name_depths:
        outer = [
            [("/".join(scope.split("/")[:depth]), secs) for scope, secs in each] for each in scopes
        ]
        names = [describe_scopes(each) for each in outer]
        if len(set(names)) == len(names):
            break
    return names
