"""Small changes of a placement, drawn at random by the compiled core.

A move takes one cluster of a level; a cluster and its neighbours; a stretch of clusters in the
order of the graph; one end of a transfer to where the other is; or it exchanges two clusters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from tf_placer.native.library import Struct, array_of, core, int64, pointer_to, random_struct
from tf_placer.placers.auto.levels import Level

__all__ = [
    "KINDS",
    "DrawnMove",
    "HotSpots",
    "MoveTables",
    "draw_move",
    "make_drawn_move",
    "make_hot_spots",
    "make_move_tables",
    "no_hot_spots",
]

KINDS = ("one", "neighbours", "stretch", "join", "swap")
"""What a move may be, by the number that `draw_move` notes."""


class MoveTables(Struct):
    """What moves are drawn from: the struct of that name in `native/moves.h`."""

    _fields_ = (
        ("num_clusters", array_of(np.int32)),
        ("cluster_of", array_of(np.int32)),
        ("members_start", array_of(np.int32)),
        ("members", array_of(np.int32)),
        ("order", array_of(np.int32)),
        ("position", array_of(np.int32)),
        ("neighbours_start", array_of(np.int64)),
        ("neighbours", array_of(np.int32)),
        ("legal", array_of(np.bool_)),
        ("cumulated", array_of(np.float64)),
        ("num_levels", int64),
        ("num_groups", int64),
        ("num_devices", int64),
    )


class HotSpots(Struct):
    """What a step waits for: the struct of that name in `native/moves.h`."""

    _fields_ = (
        ("groups", array_of(np.int32)),
        ("cumulated", array_of(np.float64)),
        ("transfers", array_of(np.int32)),
        ("num_items", int64),
        ("num_transfers", int64),
    )


class DrawnMove(Struct):
    """Space for a move: the struct of that name in `native/moves.h`."""

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


def make_hot_spots(groups: np.ndarray, secs: np.ndarray, transfers: np.ndarray) -> HotSpots:
    """Notes what a step waits for.

    Args:
        groups: int32 [num_items], the group of each operation on the critical path.
        secs: float64 [num_items], positive: how much of the path is theirs.
        transfers: int32 [num_transfers, 2], (group that sends, group that receives) of each
            transfer on the path.
    """
    return HotSpots(
        groups=groups,
        cumulated=np.cumsum(secs),
        transfers=transfers,
        num_items=len(groups),
        num_transfers=len(transfers),
    )


def no_hot_spots() -> HotSpots:
    """Makes the hot spots that are known before anybody looked: none."""
    return make_hot_spots(np.zeros(0, np.int32), np.zeros(0), np.zeros([0, 2], np.int32))


def draw_move(
    tables: MoveTables,
    hot: HotSpots,
    drawn: DrawnMove,
    random: np.random.Generator,
    placement: np.ndarray,
    coarse_share: float,
) -> int:
    """Draws a move.

    Args:
        tables: what it is drawn from.
        hot: of the placement or one like it; empty if nothing is known.
        drawn: gets the move.
        random: what it is drawn with.
        placement: int32 [num_groups], where groups are now.
        coarse_share: how often to move clusters rather than single groups, from 0 to 1.

    Returns:
        How many groups go elsewhere: the first so many of the move. 0 if nothing was found that
        changes anything.
    """
    return core().tf_placer_draw_move(
        ctypes.byref(tables),
        ctypes.byref(hot),
        ctypes.byref(drawn),
        ctypes.byref(random_struct(random)),
        pointer_to(placement, np.int32),
        coarse_share,
    )
