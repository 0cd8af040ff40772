"""A repair of moves that overfill devices."""

from __future__ import annotations

import functools

import numpy as np

from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MemoryRepair"]

_MAX_MOVED_GROUPS = 32
_MAX_EXCHANGED_GROUPS, _MAX_EXCHANGE_PARTNERS = 32, 256


class MemoryRepair:
    """Moves groups from overfull devices to devices that have room.

    Where no device has enough room, groups change places with smaller ones. The memory of a group
    is an estimate, so the result may still not fit.
    """

    def __init__(
        self, problem: PlacementProblem, legal: np.ndarray, seed: int | np.random.SeedSequence
    ) -> None:
        """Prepares to repair.

        Args:
            problem: the placement problem.
            legal: bool [num_groups, num_devices], true where a group may go.
            seed: seeds the choice of groups.
        """
        self._problem = problem
        self._legal = legal
        self._random = np.random.default_rng(seed)

    @functools.cached_property
    def _held_bytes(self) -> np.ndarray:
        """Estimates of the memory of each group, computed late because that is slow."""
        memories = estimate_group_memories(self._problem)
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
            groups: int32 [num_changed], the moved groups.
            devices: int32 [num_changed], their new devices.
            peak_bytes: int64 [num_devices], the peaks of the devices after the change.
            capacities: int64 [num_devices], the memory of the devices.

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
            # Try the smallest group that frees enough memory first.
            there = there[: 8 * _MAX_MOVED_GROUPS]
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
                if len(sent) > _MAX_MOVED_GROUPS:
                    return None
            while room[device] < 0:
                swap = self._choose_swap(device, after, fixed, room)
                if swap is None or len(sent) + 2 > _MAX_MOVED_GROUPS:
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

    def _choose_swap(
        self, device: int, after: np.ndarray, fixed: np.ndarray, room: np.ndarray
    ) -> tuple[int, int] | None:
        """Chooses a group of a device, and a smaller one elsewhere to change places with.

        The difference of their sizes is the smallest that frees enough memory, else the largest.
        """
        is_free = ~fixed
        groups = np.flatnonzero(is_free & (after == device) & (self._held_bytes > 0))
        others = np.flatnonzero(is_free & (after != device) & self._legal[:, device])
        groups = self._random.permutation(groups)[:_MAX_EXCHANGED_GROUPS]
        others = self._random.permutation(others)[:_MAX_EXCHANGE_PARTNERS]
        if not len(groups) or not len(others):
            return None
        moved = self._held_bytes[groups][:, None] - self._held_bytes[others]
        ends = after[others]
        allowed = (moved > 0) & (moved <= room[ends]) & self._legal[groups][:, ends]
        if not allowed.any():
            return None
        needed = -room[device]
        # Prefer exchanges that free enough memory.
        worth = np.where(moved >= needed, needed - moved, moved - np.iinfo(np.int64).max)
        at = int(np.argmax(np.where(allowed, worth, np.iinfo(np.int64).min)))
        row, column = divmod(at, len(others))
        return int(groups[row]), int(others[column])
