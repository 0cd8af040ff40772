"""Layout of an unrolled model: a row for each layer, a column for each step."""

from __future__ import annotations

import collections

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import OperationKinds, find_step_number
from tf_placer.report.pictures.drawing import Cell, Drawing

__all__ = ["lay_out_unrolled_grid"]

# An unrolled layer has at least this many steps.
_LEAST_STEPS = 4
# In an unrolled model, unrolled layers take at least this share of the time.
_LEAST_SHARE = 0.5
# A layer with a smaller share of the time has no row.
_LEAST_ROW_SHARE = 0.002


def lay_out_unrolled_grid(problem: PlacementProblem, kinds: OperationKinds) -> Drawing | None:
    """Lays out a recurrent model as in ColocRL, figure 4; None if the problem is no such model.

    The steps of a layer are coarse groups that share its variables: those with step numbers in
    their names, or else those that compute the same. In a recurrent model, a layer has such names,
    or its steps feed each other. The columns follow from the numbers, or else from the order in
    which the steps run. A layer that is not unrolled extends over all columns.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017.
    """
    secs = problem.compute_secs.min(axis=1)
    total_secs = max(float(secs.sum()), 1e-300)
    of_clusters: dict[int, float] = collections.defaultdict(float)
    clusters_of: dict[int, list[int]] = collections.defaultdict(list)
    for operation in problem.order.tolist():
        layer, cluster = int(kinds.layers[operation]), int(kinds.clusters[operation])
        if cluster not in of_clusters:
            clusters_of[layer].append(cluster)
        of_clusters[cluster] += float(secs[operation])
    steps = _steps(problem, kinds)
    signatures = _signatures(problem, kinds, secs)
    unrolled = {}
    for layer, clusters in clusters_of.items():
        working = sorted((c for c in clusters if of_clusters[c] > 0), key=of_clusters.__getitem__)
        found = _find_steps(working, steps, signatures)
        if len(found) >= _LEAST_STEPS:
            unrolled[layer] = [c for c in clusters if c in found]
    is_recurrent = any(
        steps.keys() >= set(clusters) or _has_recurrence(problem, kinds, clusters)
        for clusters in unrolled.values()
    )
    share = sum(of_clusters[c] for clusters in unrolled.values() for c in clusters) / total_secs
    if share < _LEAST_SHARE or not is_recurrent:
        return None
    columns = {layer: _columns(clusters, steps) for layer, clusters in unrolled.items()}
    width = 1 + max(column for of_layer in columns.values() for column in of_layer)
    cells: list[Cell] = []
    rows: list[tuple[float, str]] = []
    for layer in sorted(clusters_of):
        layer_secs = sum(of_clusters[c] for c in clusters_of[layer])
        if layer_secs < _LEAST_ROW_SHARE * total_secs:
            continue
        y = float(len(rows))
        rows.append((y, kinds.layer_names[layer]))
        if layer in unrolled:
            cells += [
                Cell(cluster, column, y)
                for cluster, column in zip(unrolled[layer], columns[layer], strict=True)
            ]
        else:
            most = max(clusters_of[layer], key=lambda c: of_clusters[c])
            cells.append(Cell(most, 0.0, y, width - 0.1))
    ticks = [column for column in range(width) if column % 5 == 0 or width <= 12]
    return Drawing(
        form="grid",
        parts=np.where(
            np.isin(kinds.clusters, [cell.number for cell in cells]), kinds.clusters, -1
        ),
        cells=tuple(cells),
        edges=(),
        rows=tuple(rows),
        columns=tuple((column + 0.45, 0.0, str(column)) for column in ticks),
        width=float(width),
        height=float(len(rows)),
    )


def _steps(problem: PlacementProblem, kinds: OperationKinds) -> dict[int, int]:
    """Finds the most common step number in the names of each coarse group."""
    counts: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    for name, cluster in zip(problem.operation_names, kinds.clusters.tolist(), strict=True):
        number = find_step_number(name)
        if number is not None:
            counts[cluster][number] += 1
    return {cluster: count.most_common(1)[0][0] for cluster, count in counts.items()}


def _signatures(
    problem: PlacementProblem, kinds: OperationKinds, secs: np.ndarray
) -> dict[int, frozenset[str]]:
    """Collects the types of the forward operations of each coarse group; none without layers."""
    if problem.layers is None or problem.operation_types is None:
        return {}
    types: dict[int, set[str]] = collections.defaultdict(set)
    for operation in np.flatnonzero(~kinds.backward & (secs > 0)).tolist():
        types[int(kinds.clusters[operation])].add(problem.operation_types[operation])
    return {cluster: frozenset(each) for cluster, each in types.items()}


def _find_steps(
    clusters: list[int], steps: dict[int, int], signatures: dict[int, frozenset[str]]
) -> set[int]:
    """Finds the steps among the coarse groups of a layer, which come in the order of their time."""
    # Leave out the updates of the variables, which belong to no step.
    largest = {steps[cluster]: cluster for cluster in clusters if cluster in steps}
    if 2 * len(largest) > len(clusters):
        return set(largest.values())
    known = collections.Counter(signatures[c] for c in clusters if c in signatures)
    return {c for c in clusters if known and signatures.get(c) == known.most_common(1)[0][0]}


def _has_recurrence(problem: PlacementProblem, kinds: OperationKinds, clusters: list[int]) -> bool:
    """Says whether most steps of a layer read from another one in the forward pass."""
    pairs = kinds.clusters[problem.edges[~kinds.backward[problem.edges].any(axis=1)]]
    inside = np.isin(pairs, clusters).all(axis=1) & (pairs[:, 0] != pairs[:, 1])
    return 2 * len(np.unique(pairs[inside, 1])) > len(clusters)


def _columns(clusters: list[int], steps: dict[int, int]) -> list[int]:
    """Assigns a column to each coarse group of a layer."""
    named = [steps.get(cluster, -1) for cluster in clusters]
    if min(named) >= 0 and len(set(named)) == len(named):
        return named
    return list(range(len(clusters)))
