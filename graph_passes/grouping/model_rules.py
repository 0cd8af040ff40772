"""Rule 3: cells, lookups, attention steps, predictions and branches, with their gradients."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.branches import join_branches
from graph_passes.grouping.grouping import OPERATIONS, Grouping, merge_groups
from graph_passes.grouping.parameters import join_parameters
from graph_passes.grouping.region_sets import RegionSets, merge_regions
from graph_passes.grouping.regions import Regions, find_regions
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["seal_model_groups"]


def seal_model_groups(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    max_branch_work_share: float = 1 / 4,
) -> Grouping:
    """Makes sealed groups of the structures that models repeat.

    The structures are found from the graph, with name scopes to distinguish the steps of a cell:
    each step of a recurrent cell (products and gates), each embedding lookup, each attention step
    (scores, softmax, weighted sum), each softmax prediction step, and each branch between a fork
    and a join. Every other contraction becomes a group. Groups include the gradients.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        max_branch_work_share: the maximum share of one branch in a step's estimated work; heavier
            branches are split, so that they can be spread over devices.

    Returns:
        The new groups, or the same object if there are no contractions and lookups.

    Raises:
        ValueError: the share is not in (0, 1].

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    if not 0 < max_branch_work_share <= 1:
        raise ValueError(f"max_branch_work_share must be in (0, 1], not {max_branch_work_share}")
    regions = find_regions(graph, colocation)
    if not regions.anchors:
        return grouping
    group_of_operation = grouping.expand_to_operations(colocation)
    work = np.where(group_of_operation >= 0, estimate_work(graph), 0.0)
    region_sets = merge_regions(graph, regions)
    join_branches(graph, regions, region_sets, work, max_branch_work_share * work.sum())
    _join_shared_groups(regions, group_of_operation, region_sets)
    return _seal_groups(graph, colocation, grouping, regions, region_sets)


def _seal_groups(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    regions: Regions,
    region_sets: RegionSets,
) -> Grouping:
    """Joins the groups of each set of regions that have the same legal devices, and parameters."""
    group_of_operation = grouping.expand_to_operations(colocation)
    # A group belongs to the set of its earliest operation.
    set_of_group: dict[int, int] = {}
    for i in graph.order[regions.region[graph.order] >= 0].tolist():
        set_of_group.setdefault(
            int(group_of_operation[i]), region_sets.find(int(regions.region[i]))
        )
    sets = UnionFind(grouping.num_groups)
    classes = grouping.legal_classes(colocation).tolist()
    first: dict[tuple[int, int], int] = {}
    sealed: dict[int, str] = {}
    for group, region_set in set_of_group.items():
        if group >= 0 and grouping.kinds[group] == OPERATIONS:
            sets.union(first.setdefault((region_set, classes[group]), group), group)
            sealed[group] = region_sets.kind(region_set)
    joinable = [
        legal_class if kind == OPERATIONS else None
        for legal_class, kind in zip(classes, grouping.kinds, strict=True)
    ]
    join_parameters(graph, regions, joinable, group_of_operation, sets, sealed)
    return merge_groups(graph, colocation, grouping, sets, sealed)


def _join_shared_groups(
    regions: Regions, group_of_operation: np.ndarray, region_sets: RegionSets
) -> None:
    """Joins the sets whose anchors share a group, such as all lookups in one variable."""
    first: dict[int, int] = {}
    for r, anchor in enumerate(regions.anchors):
        earliest = first.setdefault(int(group_of_operation[anchor]), r)
        region_sets.join(earliest, r, region_sets.kind(earliest))
