"""Small changes of a placement: some groups go to another device together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tf_placer.auto.levels import Level

__all__ = ["HotSpots", "Move", "Moves"]

# How often a move starts from what the step waits for, where that is known.
_HOT_SHARE = 0.5
# How often a cluster takes along only what is where it is.
_SAME_DEVICE_SHARE = 0.6
# The longest stretch of single groups; more are moved as clusters.
_MAX_STRETCH = 200


@dataclasses.dataclass(frozen=True, eq=False)
class HotSpots:
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


@dataclasses.dataclass(frozen=True, eq=False)
class Move:
    """Groups that go to one device; at least one of them is not there yet.

    Attributes:
        kind: what drew it, for statistics.
        groups: int32 [num_moved], in no order, none twice.
        device: where they go.
    """

    kind: str
    groups: np.ndarray
    device: int


class Moves:
    """Draws moves at random.

    A move takes one cluster of a level; a cluster and its neighbours on the same device; a stretch
    of clusters in the order of the graph; or one end of a transfer to where the other is.
    """

    def __init__(
        self,
        levels: Sequence[Level],
        legal: np.ndarray,
        work_secs: np.ndarray,
        seed: int | np.random.SeedSequence,
    ) -> None:
        """Prepares to draw.

        Args:
            levels: the last is that of single groups.
            legal: bool [num_groups, num_devices], true where a group may go.
            work_secs: float64 [num_groups], what the groups take; those that take long are drawn
                more often.
            seed: of all draws.
        """
        self._levels = levels
        self._legal = legal
        self._num_devices = legal.shape[1]
        self._random = np.random.default_rng(seed)
        movable = legal.sum(axis=1) > 1
        # Not in proportion: the many small ones matter as well.
        weights = np.where(movable, np.sqrt(work_secs + 1e-3 * work_secs.mean() + 1e-12), 0.0)
        self._cumulated = np.cumsum(weights) / max(weights.sum(), 1e-300)
        self.can_move = bool(movable.any()) and self._num_devices > 1

    def draw(self, placement: np.ndarray, hot: HotSpots | None, coarse_share: float) -> Move | None:
        """Draws one move.

        Args:
            placement: int32 [num_groups], where groups are now.
            hot: what the step waits for; None if that is not known.
            coarse_share: how often to move clusters rather than single groups, from 0 to 1.

        Returns:
            The move; None if the draw would change nothing.
        """
        random = self._random.random
        is_coarse = len(self._levels) > 1 and random() < coarse_share
        level = self._levels[int(random() * (len(self._levels) - 1))] if is_coarse else None
        level = level or self._levels[-1]
        kind = int(random() * 4)
        name = ("one", "neighbours", "stretch", "join")[kind]
        device = int(random() * self._num_devices)
        if kind == 3:
            ends = self._ends(level, hot)
            if ends is None:
                return None
            sender, receiver = ends
            device = int(placement[receiver])
            clusters = level.cluster_of[sender : sender + 1]
            anchor = sender
        else:
            anchor = self._anchor(hot)
            cluster = int(level.cluster_of[anchor])
            if kind == 0:
                clusters = level.cluster_of[anchor : anchor + 1]
            elif kind == 1:
                clusters = np.append(level.neighbours_of(cluster), np.int32(cluster))
                if not is_coarse and random() < 0.5:
                    further = [level.neighbours_of(near) for near in clusters.tolist()[:8]]
                    clusters = np.unique(np.concatenate([clusters, *further]))
            else:
                longest = min(max(2, level.num_clusters // 2), _MAX_STRETCH)
                length = int(longest ** random()) + 1
                first = max(0, int(level.position[cluster]) - int(random() * length))
                clusters = level.order[first : first + length]
        groups = level.groups_of(clusters)
        if (is_coarse and kind == 0) or random() < _SAME_DEVICE_SHARE:
            groups = groups[placement[groups] == placement[anchor]]
        groups = groups[self._legal[groups, device]]
        if not (placement[groups] != device).any():
            return None
        return Move(f"{name} {'clusters' if is_coarse else 'groups'}", groups, device)

    def _anchor(self, hot: HotSpots | None) -> int:
        """A group, long ones and those that the step waits for more often."""
        random = self._random.random
        if hot is not None and random() < _HOT_SHARE:
            at = int(np.searchsorted(hot.cumulated, random() * hot.cumulated[-1], side="right"))
            return int(hot.groups[min(at, len(hot.groups) - 1)])
        at = int(np.searchsorted(self._cumulated, random(), side="right"))
        return min(at, len(self._cumulated) - 1)

    def _ends(self, level: Level, hot: HotSpots | None) -> tuple[int, int] | None:
        """Two groups that exchange a tensor, in any order; None if there are none."""
        random = self._random.random
        if hot is not None and len(hot.transfers) and random() < _HOT_SHARE:
            one, other = hot.transfers[int(random() * len(hot.transfers))].tolist()
        else:
            one = self._anchor(hot)
            near = level.neighbours_of(int(level.cluster_of[one]))
            if not len(near):
                return None
            cluster = int(near[int(random() * len(near))])
            other = int(level.members[level.members_start[cluster]])
        return (one, other) if random() < 0.5 else (other, one)
