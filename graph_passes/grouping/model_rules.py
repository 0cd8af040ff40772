"""Rule 3: the building blocks of recurrent and convolutional models, each with its gradients."""

from __future__ import annotations

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.blocks import Blocks, find_blocks
from graph_passes.grouping.branches import join_branches
from graph_passes.grouping.grouping import OPERATIONS, Grouping, merge_groups
from graph_passes.grouping.parameters import join_parameters
from graph_passes.grouping.regions import Regions, find_regions
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["seal_blocks"]


def seal_blocks(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    max_branch_work_share: float = 1 / 4,
) -> Grouping:
    """Seals groups for the blocks that models repeat.

    Found from the structure of the graph, with name scopes to tell the steps of a cell apart: each
    step of a recurrent cell (its products and its gates), each embedding lookup, each attention
    step (scores, softmax, weighted sum), each softmax prediction step, each branch between a fork
    and a join. Other contractions become groups of their own. Each group takes its gradients along.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        max_branch_work_share: the largest share of a step's estimated work that one branch may
            hold; a heavier one is cut, so that it can still be spread over devices.

    Returns:
        The groups that were given if there is no block.

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
    of_operation = grouping.of_operations(colocation)
    work = np.where(of_operation >= 0, estimate_work(graph), 0.0)
    blocks = find_blocks(graph, regions)
    join_branches(graph, regions, blocks, work, max_branch_work_share * work.sum())
    _join_tied(regions, of_operation, blocks)
    return _seal(graph, colocation, grouping, regions, blocks)


def _seal(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    regions: Regions,
    blocks: Blocks,
) -> Grouping:
    """Joins the groups of each block that may go to the same devices, and its parameters."""
    of_operation = grouping.of_operations(colocation)
    # A group goes with the block of its earliest member.
    block_of: dict[int, int] = {}
    for i in graph.order[regions.region[graph.order] >= 0].tolist():
        block_of.setdefault(int(of_operation[i]), blocks.find(int(regions.region[i])))
    sets = UnionFind(grouping.num_groups)
    types = grouping.legal_types(colocation).tolist()
    first: dict[tuple[int, int], int] = {}
    sealed: dict[int, str] = {}
    for group, block in block_of.items():
        if group >= 0 and grouping.kinds[group] == OPERATIONS:
            sets.union(first.setdefault((block, types[group]), group), group)
            sealed[group] = blocks.kind(block)
    joinable = [
        kind_types if kind == OPERATIONS else None
        for kind_types, kind in zip(types, grouping.kinds, strict=True)
    ]
    join_parameters(graph, regions, joinable, of_operation, sets, sealed)
    return merge_groups(graph, colocation, grouping, sets, sealed)


def _join_tied(regions: Regions, of_operation: np.ndarray, blocks: Blocks) -> None:
    """Joins the blocks whose anchors share a group, such as all lookups in one variable."""
    first: dict[int, int] = {}
    for r, anchor in enumerate(regions.anchors):
        earliest = first.setdefault(int(of_operation[anchor]), r)
        blocks.join(earliest, r, blocks.kind(earliest))
