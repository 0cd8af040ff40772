"""Merging of groups into clusters, for placers that decide about clusters."""

from __future__ import annotations

import math

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["merge_group_graph", "number_clusters"]

# The kind of a cluster of several groups.
_OPERATIONS = "operations"


def number_clusters(membership: np.ndarray) -> np.ndarray:
    """Renumbers clusters by their first member.

    Args:
        membership: integers [num_groups], the cluster of each group, with arbitrary numbers.

    Returns:
        int32 [num_groups], the same clusters, numbered 0, 1, ... in order of first occurrence.
    """
    _, first, cluster = np.unique(membership, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int32)
    number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return number[cluster]


def merge_group_graph(groups: GroupGraph, membership: np.ndarray) -> GroupGraph:
    """Merges groups into clusters.

    The result is an upper bound where tensors cannot be identified: bytes that a group sends to two
    members of another cluster count twice, and the output shapes of a member that sends to another
    cluster all count, although some tensors may stay inside.

    Args:
        groups: the group graph.
        membership: int32 [num_groups], the cluster of each group, from 0 without gaps.

    Returns:
        The graph of the clusters. A cluster has the name of its first member, the lowest layer of
        its members, and the kind "operations" unless it has only one member. Its output shapes are
        sorted by their number of elements, with unknown dimensions last.

    Raises:
        ValueError: membership is not one cluster per group, or a cluster is empty.
    """
    members = _list_members(groups, membership)
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
            _sort_by_size([s for m in each if sends[m] for s in groups.output_shapes[m]])
            for each in members
        ),
        edges=np.stack(np.divmod(pairs, max(count, 1)), axis=1).astype(np.int32),
        edge_bytes=edge_bytes,
        work=np.bincount(membership, groups.work, minlength=count).astype(np.float64),
        layers=np.minimum.reduceat(groups.layers[order], starts),
    )


def _list_members(groups: GroupGraph, membership: np.ndarray) -> list[list[int]]:
    """Lists the groups of each cluster, in ascending order."""
    if membership.shape != (groups.num_groups,):
        raise ValueError(
            f"membership has shape {membership.shape} for {groups.num_groups} groups to merge"
        )
    if membership.size and membership.min() < 0:
        raise ValueError(f"membership has a cluster {membership.min()}")
    members: list[list[int]] = [[] for _ in range(int(membership.max(initial=-1)) + 1)]
    for group, cluster in enumerate(membership.tolist()):
        members[cluster].append(group)
    if [] in members:
        raise ValueError(f"membership leaves cluster {members.index([])} empty")
    return members


def _sort_by_size(shapes: list[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    def count_elements(shape: tuple[int, ...]) -> int:
        return -1 if -1 in shape else math.prod(shape)

    return tuple(sorted(shapes, key=count_elements, reverse=True))
