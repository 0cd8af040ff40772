"""Small changes of a placement, drawn at random by the compiled core.

A move takes one cluster of a level; a cluster and its neighbors; a stretch of clusters in the
order of the graph; one end of a transfer to the device of the other end; or it exchanges two
clusters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tf_placer.native.library import Struct, array_of, int64
from tf_placer.placers.auto.levels import Level

__all__ = [
    "KINDS",
    "DrawnMove",
    "MoveTables",
    "make_drawn_move",
    "make_move_tables",
]

KINDS = ("one", "neighbors", "stretch", "join", "swap")
"""The names of the kinds of moves, indexed by the number in `DrawnMove.kind`."""


class MoveTables(Struct):
    """The tables that moves are drawn from: the struct of the same name in `native/moves.h`."""

    _fields_ = (
        ("num_clusters", array_of(np.int32)),
        ("cluster_of", array_of(np.int32)),
        ("members_start", array_of(np.int32)),
        ("members", array_of(np.int32)),
        ("order", array_of(np.int32)),
        ("position", array_of(np.int32)),
        ("neighbors_start", array_of(np.int64)),
        ("neighbors", array_of(np.int32)),
        ("legal", array_of(np.bool_)),
        ("cumulated", array_of(np.float64)),
        ("num_levels", int64),
        ("num_groups", int64),
        ("num_devices", int64),
    )


class DrawnMove(Struct):
    """Space for a move: the struct of the same name in `native/moves.h`."""

    _fields_ = (
        ("groups", array_of(np.int64)),
        ("devices", array_of(np.int64)),
        ("kind", array_of(np.int32)),
        ("clusters", array_of(np.int32)),
        ("marks", array_of(np.int64)),
    )


def make_move_tables(
    levels: Sequence[Level], legal: np.ndarray, work_secs: np.ndarray
) -> MoveTables:
    """Builds the tables that moves are drawn from.

    Args:
        levels: the levels, of which the last has single groups.
        legal: bool [num_groups, num_devices], true where a group may go.
        work_secs: float64 [num_groups], the compute times of the groups; long ones are drawn more
            often.
    """
    num_groups = len(legal)
    # The square root still draws the many short groups, which matter as well.
    weights = np.sqrt(work_secs + 1e-3 * work_secs.mean() + 1e-12)
    weights = np.where(legal.sum(axis=1) > 1, weights, 0.0)

    def build_table(name: str, width: int) -> np.ndarray:
        rows = np.zeros([len(levels), width], np.int32)
        for row, level in zip(rows, levels, strict=True):
            values = getattr(level, name)
            row[: len(values)] = values
        return rows

    starts = np.zeros([len(levels), num_groups + 1], np.int64)
    total = 0
    for row, level in zip(starts, levels, strict=True):
        row[: level.num_clusters + 1] = level.neighbors_start + total
        total += len(level.neighbors)
    return MoveTables(
        num_clusters=np.array([level.num_clusters for level in levels], np.int32),
        cluster_of=build_table("cluster_of", num_groups),
        members_start=build_table("members_start", num_groups + 1),
        members=build_table("members", num_groups),
        order=build_table("order", num_groups),
        position=build_table("position", num_groups),
        neighbors_start=starts,
        neighbors=np.concatenate([level.neighbors for level in levels]).astype(np.int32),
        legal=np.ascontiguousarray(legal),
        cumulated=np.cumsum(weights) / max(weights.sum(), 1e-300),
        num_levels=len(levels),
        num_groups=num_groups,
        num_devices=legal.shape[1],
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
