"""Rule 2: what only one group reads goes with that group."""

from __future__ import annotations

import math

import numpy as np

from graph_passes.colocation import ColocationGroups
from graph_passes.grouping.grouping import PINNED, Grouping, merge_groups
from graph_passes.op_graph import OpGraph
from graph_passes.util.union_find import UnionFind
from graph_passes.work import estimate_work

__all__ = ["merge_single_consumers"]

# A group of this share of the limit is light.
_LIGHT_SHARE = 0.01


def merge_single_consumers(
    graph: OpGraph,
    colocation: ColocationGroups,
    grouping: Grouping,
    max_work_share: float = 1 / 32,
) -> Grouping:
    """Merges every group whose tensors only one other group reads into that group, recursively.

    Sealed groups absorb but never move; what is left alone takes no part. Unlimited, the rule
    folds a graph with one output into one group, so merging stops where a group would hold more
    than a share of the graph's work; what is light may come on top, up to as much again. Time is
    linear in the graph but for the number of passes, which nesting alone can raise.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        grouping: its groups.
        max_work_share: the largest share of a step's estimated work that a group may reach by
            merging; 1 for no limit.

    Raises:
        ValueError: the share is not in (0, 1].

    References:
        Device Placement Optimization with Reinforcement Learning (2017), section 3.4.
    """
    if not 0 < max_work_share <= 1:
        raise ValueError(f"max_work_share must be in (0, 1], not {max_work_share}")
    of_operation = grouping.of_operations(colocation)
    count = grouping.num_groups
    work = np.zeros(count)
    placed = (of_operation >= 0) & graph.needed
    np.add.at(work, of_operation[placed], estimate_work(graph)[placed])
    # Rounding must not make a limit of no limit.
    limit = math.inf if max_work_share == 1 else max_work_share * work.sum()
    weight = work.tolist()

    readers = _readers(graph, of_operation, placed, count)
    sets = UnionFind(count)
    members = [[i] for i in range(count)]
    # The sum of light groups that a group may take beyond the limit.
    spare = [limit] * count
    sealed = grouping.sealed.tolist()
    alone = [kind == PINNED for kind in grouping.kinds]
    types = grouping.legal_types(colocation).tolist()
    merged = True
    while merged:
        merged = False
        # Last producers first: a chain folds in one pass.
        for i in range(count - 1, -1, -1):
            if sets.find(i) != i or sealed[i]:
                continue
            target = _only_reader(i, members[i], readers, sets)
            if target is None or alone[target] or types[i] != types[target]:
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
            # The longer list stays, so that long chains take linear time.
            short, long = sorted((members[root], members[other]), key=len)
            long.extend(short)
            members[root] = long
            weight[root] += weight[other]
            sealed[root] = sealed[root] or sealed[other]
            merged = True
    return merge_groups(graph, colocation, grouping, sets)


def _readers(
    graph: OpGraph, of_operation: np.ndarray, placed: np.ndarray, count: int
) -> list[list[int]]:
    """Lists the groups that read from each group in a step."""
    producer, consumer = of_operation[graph.edge_producer], of_operation[graph.edge_consumer]
    live = placed[graph.edge_producer] & placed[graph.edge_consumer] & (producer != consumer)
    readers: list[list[int]] = [[] for _ in range(count)]
    for p, c in np.unique(np.stack([producer[live], consumer[live]], axis=1), axis=0).tolist():
        readers[p].append(c)
    return readers


def _only_reader(
    group: int, members: list[int], readers: list[list[int]], sets: UnionFind
) -> int | None:
    """Finds the one other group that reads from a group; None if there are none or several."""
    only = None
    for member in members:
        for reader in readers[member]:
            root = sets.find(reader)
            if root != group and root != only:
                if only is not None:
                    return None
                only = root
    return only
