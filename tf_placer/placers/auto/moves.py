"""Small changes of a placement, drawn at random by code that numba compiles.

A move takes one cluster of a level; a cluster and its neighbours; a stretch of clusters in the
order of the graph; one end of a transfer to where the other is; or it exchanges two clusters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from tf_placer.placers.auto.levels import Level

__all__ = [
    "KINDS",
    "DrawnMove",
    "HotSpots",
    "MoveTables",
    "draw_move",
    "make_drawn_move",
    "make_move_tables",
    "no_hot_spots",
]

KINDS = ("one", "neighbours", "stretch", "join", "swap")
"""What a move may be, by the number that `draw_move` notes."""

_ONE, _NEIGHBOURS, _STRETCH, _JOIN, _SWAP = range(5)
# How often a move starts from what the step waits for, where that is known.
_HOT_SHARE = 0.8
# How often a move takes along only what is where it starts.
_SAME_DEVICE_SHARE = 0.6
# How often neighbours of neighbours come along, and of how many neighbours.
_FURTHER_SHARE, _MAX_FURTHER = 0.5, 8
# The longest stretch of single groups; more are moved as clusters.
_MAX_STRETCH = 200
# How often a cluster is exchanged for one that is close in the order of the graph.
_CLOSE_SHARE = 0.5
# Draws that change nothing cost little beside a simulation.
_MAX_DRAWS = 64

# numba cannot work with type hints.
# mypy: disallow-untyped-defs=False


class MoveTables(NamedTuple):
    """What moves are drawn from. The last level is that of single groups.

    Attributes:
        num_clusters: int32 [num_levels].
        cluster_of: int32 [num_levels, num_groups]; see `Level` for this and what follows.
        members_start: int32 [num_levels, num_groups + 1].
        members: int32 [num_levels, num_groups].
        order: int32 [num_levels, num_groups].
        position: int32 [num_levels, num_groups].
        neighbours_start: int64 [num_levels, num_groups + 1], into the neighbours of all levels.
        neighbours: int32 [num_neighbours], of all levels.
        legal: bool [num_groups, num_devices], true where a group may go.
        cumulated: float64 [num_groups], how often a group is drawn, added up to 1.
    """

    num_clusters: np.ndarray
    cluster_of: np.ndarray
    members_start: np.ndarray
    members: np.ndarray
    order: np.ndarray
    position: np.ndarray
    neighbours_start: np.ndarray
    neighbours: np.ndarray
    legal: np.ndarray
    cumulated: np.ndarray


class HotSpots(NamedTuple):
    """What a step waits for: the groups and the transfers on its critical path.

    Attributes:
        groups: int32 [num_items], the group of each operation on the path.
        cumulated: float64 [num_items], their shares of the time on the path, added up.
        transfers: int32 [num_transfers, 2], (group that sends, group that receives) of each
            transfer on the path.
    """

    groups: np.ndarray
    cumulated: np.ndarray
    transfers: np.ndarray


class DrawnMove(NamedTuple):
    """Space for a move: groups that go elsewhere, none twice.

    Attributes:
        groups: int64 [num_groups].
        devices: int64 [num_groups], where they go.
        kind: int32 [2], its place in `KINDS`, and its level.
        clusters: int32 [num_groups], working space.
        marks: int64 [num_groups + 1], working space.
    """

    groups: np.ndarray
    devices: np.ndarray
    kind: np.ndarray
    clusters: np.ndarray
    marks: np.ndarray


def make_move_tables(
    levels: Sequence[Level], legal: np.ndarray, work_secs: np.ndarray
) -> MoveTables:
    """Prepares to draw.

    Args:
        levels: the last is that of single groups.
        legal: bool [num_groups, num_devices], true where a group may go.
        work_secs: float64 [num_groups], what the groups take; those that take long are drawn more
            often.
    """
    num_groups = len(legal)
    # Not in proportion: the many small ones matter as well.
    weights = np.sqrt(work_secs + 1e-3 * work_secs.mean() + 1e-12)
    weights = np.where(legal.sum(axis=1) > 1, weights, 0.0)

    def table(name: str, width: int) -> np.ndarray:
        rows = np.zeros([len(levels), width], np.int32)
        for row, level in zip(rows, levels, strict=True):
            values = getattr(level, name)
            row[: len(values)] = values
        return rows

    starts = np.zeros([len(levels), num_groups + 1], np.int64)
    total = 0
    for row, level in zip(starts, levels, strict=True):
        row[: level.num_clusters + 1] = level.neighbours_start + total
        total += len(level.neighbours)
    return MoveTables(
        num_clusters=np.array([level.num_clusters for level in levels], np.int32),
        cluster_of=table("cluster_of", num_groups),
        members_start=table("members_start", num_groups + 1),
        members=table("members", num_groups),
        order=table("order", num_groups),
        position=table("position", num_groups),
        neighbours_start=starts,
        neighbours=np.concatenate([level.neighbours for level in levels]).astype(np.int32),
        legal=np.ascontiguousarray(legal),
        cumulated=np.cumsum(weights) / max(weights.sum(), 1e-300),
    )


def make_drawn_move(num_groups: int) -> DrawnMove:
    """Makes space for one move at a time."""
    return DrawnMove(
        groups=np.zeros(num_groups, np.int64),
        devices=np.zeros(num_groups, np.int64),
        kind=np.zeros(2, np.int32),
        clusters=np.zeros(num_groups, np.int32),
        marks=np.zeros(num_groups + 1, np.int64),
    )


def no_hot_spots() -> HotSpots:
    """Makes the hot spots that are known before anybody looked: none."""
    return HotSpots(np.zeros(0, np.int32), np.zeros(0), np.zeros([0, 2], np.int32))


@numba.njit
def _drawn(cumulated, random):
    """Draws a place, weighed by what was added up."""
    at = np.searchsorted(cumulated, random.random() * cumulated[-1], side="right")
    return min(at, len(cumulated) - 1)


@numba.njit
def _anchor(tables, hot, random):
    """Draws a group, long ones and those that the step waits for more often."""
    if len(hot.groups) and random.random() < _HOT_SHARE:
        return hot.groups[_drawn(hot.cumulated, random)]
    return np.int32(_drawn(tables.cumulated, random))


@numba.njit
def _near(tables, level, cluster, number):
    """Picks, by its number, one of the clusters that a cluster exchanges tensors with."""
    return tables.neighbours[tables.neighbours_start[level, cluster] + number]


@numba.njit
def _num_near(tables, level, cluster):
    starts = tables.neighbours_start
    return starts[level, cluster + 1] - starts[level, cluster]


@numba.njit
def _ends(tables, hot, random, level):
    """Draws two groups that exchange a tensor, in any order; -1 if there are none."""
    if len(hot.transfers) and random.random() < _HOT_SHARE:
        row = int(random.random() * len(hot.transfers))
        one, other = hot.transfers[row, 0], hot.transfers[row, 1]
    else:
        one = _anchor(tables, hot, random)
        cluster = tables.cluster_of[level, one]
        count = _num_near(tables, level, cluster)
        if not count:
            return np.int32(-1), np.int32(-1)
        cluster = _near(tables, level, cluster, int(random.random() * count))
        other = tables.members[level, tables.members_start[level, cluster]]
    return (one, other) if random.random() < 0.5 else (other, one)


@numba.njit
def _add_cluster(drawn, cluster, count):
    """Adds a cluster to those of the move unless it is one; returns how many there are."""
    if drawn.marks[cluster] == drawn.marks[-1]:
        return count
    drawn.marks[cluster] = drawn.marks[-1]
    drawn.clusters[count] = cluster
    return count + 1


@numba.njit
def _add_groups(tables, drawn, placement, level, cluster, only, device, count):
    """Adds the groups of a cluster that may and do not go to a device yet; returns the count."""
    starts = tables.members_start
    for at in range(starts[level, cluster], starts[level, cluster + 1]):
        group = tables.members[level, at]
        here = placement[group]
        if here != device and tables.legal[group, device] and (only == -1 or only == here):
            drawn.groups[count] = group
            drawn.devices[count] = device
            count += 1
    return count


@numba.njit
def _other(tables, hot, random, level, cluster):
    """Draws a group to exchange a cluster for."""
    if random.random() < _CLOSE_SHARE:
        count = tables.num_clusters[level]
        distance = int(count ** random.random())
        if random.random() < 0.5:
            distance = -distance
        at = min(max(tables.position[level, cluster] + distance, 0), count - 1)
        return tables.members[level, tables.members_start[level, tables.order[level, at]]]
    return _anchor(tables, hot, random)


@numba.njit
def _draw(tables, hot, drawn, random, placement, coarse_share):
    """Draws once; returns how many groups go elsewhere."""
    num_levels = len(tables.num_clusters)
    is_coarse = num_levels > 1 and random.random() < coarse_share
    level = int(random.random() * (num_levels - 1)) if is_coarse else num_levels - 1
    kind = int(random.random() * len(KINDS))
    device = int(random.random() * tables.legal.shape[1])
    drawn.kind[0], drawn.kind[1] = kind, level
    drawn.marks[-1] += 1
    if kind == _JOIN:
        anchor, other = _ends(tables, hot, random, level)
        if anchor < 0:
            return 0
        device = placement[other]
    else:
        anchor = _anchor(tables, hot, random)
    source = placement[anchor]
    cluster = tables.cluster_of[level, anchor]
    num_clusters = _add_cluster(drawn, cluster, 0)
    if kind == _NEIGHBOURS:
        for number in range(_num_near(tables, level, cluster)):
            near = _near(tables, level, cluster, number)
            num_clusters = _add_cluster(drawn, near, num_clusters)
        if not is_coarse and random.random() < _FURTHER_SHARE:
            for at in range(min(num_clusters, _MAX_FURTHER)):
                near = drawn.clusters[at]
                for number in range(_num_near(tables, level, near)):
                    further = _near(tables, level, near, number)
                    num_clusters = _add_cluster(drawn, further, num_clusters)
    elif kind == _STRETCH:
        longest = min(max(2, tables.num_clusters[level] // 2), _MAX_STRETCH)
        length = int(longest ** random.random()) + 1
        first = max(0, tables.position[level, cluster] - int(random.random() * length))
        num_clusters = min(length, tables.num_clusters[level] - first)
        drawn.clusters[:num_clusters] = tables.order[level, first : first + num_clusters]
    elif kind == _SWAP:
        other = _other(tables, hot, random, level, cluster)
        device = placement[other]
        if device == source:
            return 0
        there = tables.cluster_of[level, other]
        count = _add_groups(tables, drawn, placement, level, there, device, source, 0)
        return _add_groups(tables, drawn, placement, level, cluster, source, device, count)
    takes_same = (is_coarse and kind == _ONE) or random.random() < _SAME_DEVICE_SHARE
    only, count = source if takes_same else -1, 0
    for at in range(num_clusters):
        count = _add_groups(
            tables, drawn, placement, level, drawn.clusters[at], only, device, count
        )
    return count


@numba.njit
def draw_move(tables, hot, drawn, random, placement, coarse_share):
    """Draws a move.

    Args:
        tables: `MoveTables`.
        hot: `HotSpots` of the placement or one like it; empty if nothing is known.
        drawn: `DrawnMove`, gets the move.
        random: numpy Generator.
        placement: int32 [num_groups], where groups are now.
        coarse_share: how often to move clusters rather than single groups, from 0 to 1.

    Returns:
        How many groups go elsewhere: the first so many of the move. 0 if nothing was found that
        changes anything.
    """
    for _ in range(_MAX_DRAWS):
        count = _draw(tables, hot, drawn, random, placement, coarse_share)
        if count:
            return count
    return 0
