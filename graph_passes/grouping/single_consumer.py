"""Rule 2: groups with a single consumer join it."""

from __future__ import annotations

import math

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import PINNED, Grouping, merge_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["merge_single_consumers"]

# Groups are light up to this share of the limit.
_LIGHT_SHARE = 0.01


def merge_single_consumers(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    max_work_share: float = 1 / 32,
) -> Grouping:
    """Merges every group with a single consumer into that consumer, recursively.

    Sealed groups absorb others but never move, and pinned groups take no part. Without a limit, the
    rule would merge a graph with one output into one group, so merging stops where a group would
    exceed a share of the graph's work. Light groups may exceed the limit, up to twice the share.
    Time is linear in the graph, times the number of passes, which only grows with nesting.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        max_work_share: the maximum share of a group in a step's estimated work; 1 for no limit.

    Raises:
        ValueError: the share is not in (0, 1].

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    if not 0 < max_work_share <= 1:
        raise ValueError(f"max_work_share must be in (0, 1], not {max_work_share}")
    group_of_operation = grouping.expand_to_operations(colocation)
    count = grouping.num_groups
    work = np.zeros(count)
    placed = (group_of_operation >= 0) & graph.needed
    np.add.at(work, group_of_operation[placed], estimate_work(graph)[placed])
    # Use infinity: 1.0 times the total could be exceeded by rounding.
    limit = math.inf if max_work_share == 1 else max_work_share * work.sum()
    weight = work.tolist()

    readers = _list_readers(graph, group_of_operation, placed, count)
    sets = UnionFind(count)
    members = [[i] for i in range(count)]
    # The sum of light groups that a group may take beyond the limit.
    spare = [limit] * count
    sealed = grouping.sealed.tolist()
    pinned = [kind == PINNED for kind in grouping.kinds]
    classes = grouping.legal_classes(colocation).tolist()
    merged = True
    while merged:
        merged = False
        # In reverse topological order, a chain is merged in one pass.
        for i in range(count - 1, -1, -1):
            if sets.find(i) != i or sealed[i]:
                continue
            target = _find_only_reader(i, members[i], readers, sets)
            if target is None or pinned[target] or classes[i] != classes[target]:
                continue
            # A light group may exceed the limit to join its consumer; `spare` bounds their sum.
            light = 0.0
            if weight[i] + weight[target] > limit:
                if weight[i] > _LIGHT_SHARE * limit or weight[i] > spare[target]:
                    continue
                light = weight[i]
            left = min(spare[i], spare[target]) - light
            root = sets.union(i, target)
            spare[root] = left
            other = target if root == i else i
            # The shorter list is appended, so that long chains take linear time.
            short, long = sorted((members[root], members[other]), key=len)
            long.extend(short)
            members[root] = long
            weight[root] += weight[other]
            sealed[root] = sealed[root] or sealed[other]
            merged = True
    return merge_groups(graph, colocation, grouping, sets)


def _list_readers(
    graph: OpGraph, group_of_operation: np.ndarray, placed: np.ndarray, count: int
) -> list[list[int]]:
    """Lists the groups that read from each group."""
    producer, consumer = (
        group_of_operation[graph.edge_producer],
        group_of_operation[graph.edge_consumer],
    )
    live = placed[graph.edge_producer] & placed[graph.edge_consumer] & (producer != consumer)
    readers: list[list[int]] = [[] for _ in range(count)]
    for p, c in np.unique(np.stack([producer[live], consumer[live]], axis=1), axis=0).tolist():
        readers[p].append(c)
    return readers


def _find_only_reader(
    group: int, members: list[int], readers: list[list[int]], sets: UnionFind
) -> int | None:
    """Finds the single consumer of a group; None if there are none or several."""
    only = None
    for member in members:
        for reader in readers[member]:
            root = sets.find(reader)
            if root != group and root != only:
                if only is not None:
                    return None
                only = root
    return only
