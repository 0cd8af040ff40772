"""Makes room on devices that hold too much."""

from __future__ import annotations

import functools

import numpy as np

from tf_placer.placers.heuristics.group_memory import group_memories
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MemoryRepair"]

# More groups than this are not moved to make room for one move.
_MAX_GROUPS = 32
# Groups that are looked at to be sent away, and those to come back for them, where none just goes.
_MAX_SENT, _MAX_TAKEN = 32, 256


class MemoryRepair:
    """Sends groups away from devices that hold too much, to devices that have room.

    Where no device has room enough, groups change places with smaller ones. How much a group holds
    is an estimate, so what comes out may still not fit.
    """

    def __init__(
        self, problem: PlacementProblem, legal: np.ndarray, seed: int | np.random.SeedSequence
    ) -> None:
        """Prepares to repair.

        Args:
            problem: what is placed.
            legal: bool [num_groups, num_devices], true where a group may go.
            seed: of the choice of groups.
        """
        self._problem = problem
        self._legal = legal
        self._random = np.random.default_rng(seed)

    @functools.cached_property
    def _held_bytes(self) -> np.ndarray:
        """What each group holds, about; takes as long as many simulations, and is seldom needed."""
        memories = group_memories(self._problem)
        held_bytes: np.ndarray = np.max([memory.kept_bytes for memory in memories], axis=0)
        return held_bytes

    def repair(
        self,
        placement: np.ndarray,
        groups: np.ndarray,
        devices: np.ndarray,
        peak_bytes: np.ndarray,
        capacities: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Extends a change of a placement until it may fit.

        Args:
            placement: int32 [num_groups], before the change.
            groups: int32 [num_changed], the groups that go elsewhere.
            devices: int32 [num_changed], where they go.
            peak_bytes: int64 [num_devices], what the devices hold after the change.
            capacities: int64 [num_devices], what they can hold.

        Returns:
            The change with further groups, none twice; None if no room was found.
        """
        after = placement.copy()
        after[groups] = devices
        fixed = np.zeros(len(placement), np.bool_)
        fixed[groups] = True
        room = (capacities - peak_bytes).astype(np.int64)
        sent: list[int] = []
        for device in np.flatnonzero(room < 0).tolist():
            there = np.flatnonzero((after == device) & ~fixed & (self._held_bytes > 0))
            self._random.shuffle(there)
            # Of what was drawn, what is just large enough comes first.
            there = there[: 8 * _MAX_GROUPS]
            enough = self._held_bytes[there] >= -room[device]
            there = there[np.lexsort([np.where(enough, self._held_bytes[there], 0), ~enough])]
            for group in there.tolist():
                if room[device] >= 0:
                    break
                held = self._held_bytes[group]
                space = np.where(self._legal[group], room, -1)
                space[device] = -1
                to = int(np.argmax(space))
                if space[to] < held:
                    continue
                after[group] = to
                fixed[group] = True
                room[to] -= held
                room[device] += held
                sent.append(group)
                if len(sent) > _MAX_GROUPS:
                    return None
            while room[device] < 0:
                swap = self._swap(device, after, fixed, room)
                if swap is None or len(sent) + 2 > _MAX_GROUPS:
                    return None
                group, other = swap
                moved = self._held_bytes[group] - self._held_bytes[other]
                room[after[other]] -= moved
                room[device] += moved
                after[group], after[other] = after[other], device
                fixed[[group, other]] = True
                sent += [group, other]
        further = np.array(sent, np.int32)
        return (
            np.concatenate([groups, further]).astype(np.int32),
            np.concatenate([devices, after[further]]).astype(np.int32),
        )

    def _swap(
        self, device: int, after: np.ndarray, fixed: np.ndarray, room: np.ndarray
    ) -> tuple[int, int] | None:
        """Chooses a group of a device, and a smaller one elsewhere to change places with.

        Just large enough is the difference if possible, else as large as possible.
        """
        is_free = ~fixed
        groups = np.flatnonzero(is_free & (after == device) & (self._held_bytes > 0))
        others = np.flatnonzero(is_free & (after != device) & self._legal[:, device])
        groups = self._random.permutation(groups)[:_MAX_SENT]
        others = self._random.permutation(others)[:_MAX_TAKEN]
        if not len(groups) or not len(others):
            return None
        moved = self._held_bytes[groups][:, None] - self._held_bytes[others]
        ends = after[others]
        allowed = (moved > 0) & (moved <= room[ends]) & self._legal[groups][:, ends]
        if not allowed.any():
            return None
        needed = -room[device]
        # What is enough is better than what is not.
        worth = np.where(moved >= needed, needed - moved, moved - np.iinfo(np.int64).max)
        at = int(np.argmax(np.where(allowed, worth, np.iinfo(np.int64).min)))
        row, column = divmod(at, len(others))
        return int(groups[row]), int(others[column])
