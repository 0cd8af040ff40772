"""Partitions of the groups into clusters that move as one, from the coarsest to single groups."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["Level", "make_levels"]


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """A partition of the groups into clusters, and the pairs of clusters that exchange tensors.

    Attributes:
        members_start: int64 [num_clusters + 1]: cluster c has the groups
            `members[members_start[c] : members_start[c + 1]]`.
        members: int32 [num_groups], see above.
        cluster_of: int32 [num_groups], the cluster of each group.
        order: int32 [num_clusters], the clusters from the inputs to the outputs of the graph.
        position: int32 [num_clusters], the place of each cluster in that order.
        neighbors_start: int64 [num_clusters + 1]: cluster c exchanges tensors with the clusters
            `neighbors[neighbors_start[c] : neighbors_start[c + 1]]`.
        neighbors: int32 [num_neighbors], see above.
    """

    members_start: np.ndarray
    members: np.ndarray
    cluster_of: np.ndarray
    order: np.ndarray
    position: np.ndarray
    neighbors_start: np.ndarray
    neighbors: np.ndarray

    @property
    def num_clusters(self) -> int:
        """The number of clusters."""
        return len(self.order)

    def groups_of(self, clusters: np.ndarray) -> np.ndarray:
        """Lists the groups of some clusters, int32."""
        if len(clusters) == 1:
            cluster = clusters[0]
            return self.members[self.members_start[cluster] : self.members_start[cluster + 1]]
        start, stop = self.members_start[clusters], self.members_start[clusters + 1]
        counts = stop - start
        ends = np.cumsum(counts)
        return self.members[np.arange(ends[-1]) + np.repeat(stop - ends, counts)]

    def neighbors_of(self, cluster: int) -> np.ndarray:
        """Lists the clusters that a cluster exchanges tensors with, int32."""
        return self.neighbors[self.neighbors_start[cluster] : self.neighbors_start[cluster + 1]]


def make_levels(groups: GroupGraph, memberships: Sequence[np.ndarray]) -> tuple[Level, ...]:
    """Makes the levels of a graph, from the coarsest to single groups.

    Args:
        groups: the groups.
        memberships: int [num_groups] each, the cluster of every group, with any numbers.
            A partition into single groups is left out.

    Raises:
        ValueError: a membership does not fit the groups.
    """
    single = np.arange(groups.num_groups)
    partitions = []
    for membership in memberships:
        if membership.shape != single.shape:
            raise ValueError(
                f"a membership must have the shape [{groups.num_groups}], not "
                f"{list(membership.shape)}"
            )
        clusters, cluster_of = np.unique(membership, return_inverse=True)
        if len(clusters) < groups.num_groups:
            partitions.append((len(clusters), cluster_of.reshape(-1)))
    partitions.sort(key=lambda partition: partition[0])
    return tuple(
        _make_level(groups, count, cluster_of)
        for count, cluster_of in [*partitions, (groups.num_groups, single)]
    )


def _make_level(groups: GroupGraph, count: int, cluster_of: np.ndarray) -> Level:
    ends = cluster_of[groups.edges.astype(np.int64)].reshape(-1, 2)
    ends = ends[ends[:, 0] != ends[:, 1]]
    pairs = np.unique(np.concatenate([ends, ends[:, ::-1]]) @ np.array([count, 1]))
    # Layers are numbered from the inputs; a cluster is ordered by the mean layer of its groups.
    sizes = np.bincount(cluster_of, minlength=count)
    layers = np.bincount(cluster_of, groups.layers, minlength=count) / sizes
    order = np.lexsort([np.arange(count), layers]).astype(np.int32)
    position = np.empty(count, np.int32)
    position[order] = np.arange(count)
    return Level(
        members_start=np.concatenate([[0], np.cumsum(sizes)]),
        members=np.argsort(cluster_of, kind="stable").astype(np.int32),
        cluster_of=cluster_of.astype(np.int32),
        order=order,
        position=position,
        neighbors_start=np.searchsorted(pairs // count, np.arange(count + 1)),
        neighbors=(pairs % count).astype(np.int32),
    )
