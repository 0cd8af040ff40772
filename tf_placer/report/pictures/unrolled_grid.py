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

    The steps of a layer are its coarse groups, which share its variables. Their columns follow from
    the step numbers in their names, or else from the order in which they run. A layer that is not
    unrolled extends over all columns.

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
    unrolled = {}
    for layer, clusters in clusters_of.items():
        working = [c for c in clusters if of_clusters[c] > 0]
        # Leave out the updates of the variables, which belong to no step.
        largest: dict[int, int] = {}
        for cluster in sorted(working, key=lambda c: of_clusters[c]):
            if cluster in steps:
                largest[steps[cluster]] = cluster
        if 2 * len(largest) > len(working):
            working = [largest[step] for step in sorted(largest)]
        if len(working) >= _LEAST_STEPS:
            unrolled[layer] = working
    share = sum(of_clusters[c] for clusters in unrolled.values() for c in clusters) / total_secs
    if share < _LEAST_SHARE:
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


def _columns(clusters: list[int], steps: dict[int, int]) -> list[int]:
    """Assigns a column to each coarse group of a layer."""
    named = [steps.get(cluster, -1) for cluster in clusters]
    if min(named) >= 0 and len(set(named)) == len(named):
        return named
    return list(range(len(clusters)))
