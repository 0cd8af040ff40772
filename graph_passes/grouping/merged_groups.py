"""Groups of groups, for placers that decide about fewer things than there are groups."""

from __future__ import annotations

import math

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["in_order", "merge_group_graph"]

# Kind of a group that more than one group was merged into.
_OPERATIONS = "operations"


def in_order(membership: np.ndarray) -> np.ndarray:
    """Numbers parts by their first member.

    Args:
        membership: integers [num_groups], the part of each group, under whatever numbers.

    Returns:
        int32 [num_groups], the same parts numbered 0, 1, ... in the order in which they occur.
    """
    _, first, part = np.unique(membership, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return number[part]


def merge_group_graph(groups: GroupGraph, membership: np.ndarray) -> GroupGraph:
    """Merges groups.

    What a group sends to two members of another part counts twice, because it is not known which
    tensors are the same; so do the shapes of what leaves a member that sends out of its part, of
    which some may stay in it.

    Args:
        groups: the graph of groups.
        membership: int32 [num_groups], the part of each group, from 0 without gaps.

    Returns:
        The graph of the parts. A part has the name of its first member, the lowest layer of all,
        and the kind "operations" unless it has one member only. Sizes of its output shapes are
        compared by their number of elements, an unknown dimension being the least.

    Raises:
        ValueError: membership is not one part per group, or a part is empty.
    """
    members = _members(groups, membership)
    count = len(members)
    order = np.argsort(membership, kind="stable")
    starts = np.cumsum([0, *map(len, members)])[:count]

    ends = np.asarray(membership, np.int64)[groups.edges]
    crosses = ends[:, 0] != ends[:, 1]
    pairs, pair_of = np.unique(ends[crosses, 0] * count + ends[crosses, 1], return_inverse=True)
    edge_bytes = np.zeros(len(pairs), np.int64)
    np.add.at(edge_bytes, pair_of, groups.edge_bytes[crosses])
    sends = np.zeros(groups.num_groups, bool)
    sends[groups.edges[crosses, 0]] = True
    return GroupGraph(
        names=tuple(groups.names[each[0]] for each in members),
        kinds=tuple(_OPERATIONS if len(m) > 1 else groups.kinds[m[0]] for m in members),
        type_names=groups.type_names,
        type_counts=np.add.reduceat(groups.type_counts[order], starts, axis=0, dtype=np.int32),
        output_shapes=tuple(
            _largest_first([s for m in each if sends[m] for s in groups.output_shapes[m]])
            for each in members
        ),
        edges=np.stack(np.divmod(pairs, max(count, 1)), axis=1).astype(np.int32),
        edge_bytes=edge_bytes,
        work=np.bincount(membership, groups.work, minlength=count).astype(np.float64),
        layers=np.minimum.reduceat(groups.layers[order], starts),
    )


def _members(groups: GroupGraph, membership: np.ndarray) -> list[list[int]]:
    """Lists the groups of each part, in ascending order."""
    if membership.shape != (groups.num_groups,):
        raise ValueError(
            f"membership has shape {membership.shape} for {groups.num_groups} groups to merge"
        )
    if membership.size and membership.min() < 0:
        raise ValueError(f"membership has a part {membership.min()}")
    members: list[list[int]] = [[] for _ in range(int(membership.max(initial=-1)) + 1)]
    for group, part in enumerate(membership.tolist()):
        members[part].append(group)
    if [] in members:
        raise ValueError(f"membership leaves part {members.index([])} empty")
    return members


def _largest_first(shapes: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    def elements(shape: tuple[int, ...]) -> int:
        return -1 if -1 in shape else math.prod(shape)

    return tuple(sorted(shapes, key=elements, reverse=True))
