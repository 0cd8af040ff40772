"""Distributes what groups hold, so that no device holds more than it can."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.heuristics.group_memory import group_memories
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Packer", "pack", "repack"]

# Into so many parts all sizes together are cut, to find sums that fill a device.
_PARTS = 2**16
# Groups that are looked at to be moved, and those to change places with, at once.
_MAX_GROUPS, _MAX_OTHERS = 64, 512
# More are made in vain, as a rule.
_MAX_EXCHANGES = 300
# For how many exchanges a group that was moved stays where it is, at most.
_MAX_REST = 8


class Packer:
    """Packs groups anew where a step needs more memory than there is.

    How much devices hold beside the sizes of their groups, such as copies from other devices, is
    taken from the simulation of what was packed before.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        legal: np.ndarray,
        seed: int | np.random.SeedSequence,
        *,
        only_resident: bool,
    ) -> None:
        """Finds out how large groups are.

        Args:
            problem: what is placed.
            legal: bool [num_groups, num_devices], true where a group may go.
            seed: of all choices.
            only_resident: whether the size of a group is what it holds all the time, instead of an
                estimate of the most that it holds.
        """
        if only_resident:
            self._sizes = np.zeros(problem.num_groups, np.int64)
            np.add.at(self._sizes, problem.groups, problem.resident_bytes)
        else:
            memories = group_memories(problem)
            self._sizes = np.max([memory.kept_bytes for memory in memories], axis=0)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        self._legal = legal
        self._random = np.random.default_rng(seed)

    def repack(self, placement: np.ndarray, peak_bytes: np.ndarray) -> np.ndarray:
        """Changes a placement so that it may fit.

        Args:
            placement: int32 [num_groups].
            peak_bytes: int64 [num_devices], what its devices hold.

        Returns:
            int32 [num_groups]; the placement itself if nothing better was found.
        """
        held = np.zeros(len(self._capacities), np.int64)
        np.add.at(held, placement, self._sizes)
        capacities = self._capacities - (peak_bytes - held)
        return repack(self._sizes, capacities, self._legal, placement, self._random)

    def pack(self, placement: np.ndarray) -> np.ndarray:
        """Makes a placement from scratch; only what needs no room is where it was.

        Args:
            placement: int32 [num_groups].

        Returns:
            int32 [num_groups], whose sizes fit if that was found.
        """
        packed = pack(self._sizes, self._capacities, self._legal, placement, self._random)
        return repack(self._sizes, self._capacities, self._legal, packed, self._random)


def repack(
    sizes: np.ndarray,
    capacities: np.ndarray,
    legal: np.ndarray,
    placement: np.ndarray,
    random: np.random.Generator,
    max_exchanges: int = _MAX_EXCHANGES,
) -> np.ndarray:
    """Changes a distribution until it fits, by exchanges that leave the least too much.

    A group on a device that holds too much goes to another device, or changes places with a group
    there. What was moved rests for a while, so that the search gets out of dead ends.

    Args:
        sizes: int64 [num_groups], bytes.
        capacities: int64 [num_devices], bytes.
        legal: bool [num_groups, num_devices], true where a group may go.
        placement: int32 [num_groups], where groups are.
        random: chooses among groups and how long they rest.
        max_exchanges: how many moves and exchanges to make at most.

    Returns:
        int32 [num_groups], the distribution that had least too much on all devices together.

    References:
        Glover, Tabu Search, ORSA Journal on Computing 1(3), 1989.
    """
    placement = placement.copy()
    filled = np.zeros(len(capacities), np.int64)
    np.add.at(filled, placement, sizes)
    room = capacities - filled
    best, best_excess = placement.copy(), _excess(room)
    rests_until = np.zeros(len(sizes), np.int64)
    for number in range(max_exchanges):
        if not best_excess:
            break
        crowded = np.flatnonzero((room[placement] < 0) & (rests_until <= number) & (sizes > 0))
        if not len(crowded):
            continue
        crowded = random.permutation(crowded)[:_MAX_GROUPS]
        group, other, to = _best_exchange(
            sizes, room, legal, placement, crowded, rests_until <= number
        )
        if group < 0:
            continue
        source = placement[group]
        moved = sizes[group] - (sizes[other] if other >= 0 else 0)
        room[source] += moved
        room[to] -= moved
        placement[group] = to
        rests_until[group] = number + 2 + random.integers(_MAX_REST)
        if other >= 0:
            placement[other] = source
            rests_until[other] = number + 2 + random.integers(_MAX_REST)
        excess = _excess(room)
        if excess < best_excess:
            best, best_excess = placement.copy(), excess
    return best


def pack(
    sizes: np.ndarray,
    capacities: np.ndarray,
    legal: np.ndarray,
    placement: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Distributes groups from scratch: fills the devices one by one, each by a sum that fits.

    Args:
        sizes: int64 [num_groups], bytes.
        capacities: int64 [num_devices], bytes.
        legal: bool [num_groups, num_devices], true where a group may go.
        placement: int32 [num_groups], where what needs no room is.
        random: the order of the devices and groups, and how full devices are made.

    Returns:
        int32 [num_groups]. What is on the last devices may be too much.

    References:
        Caprara and Pferschy, Worst-case analysis of the subset sum algorithm for bin packing,
        Operations Research Letters 32(2), 2004. That all devices get their share is ours.
    """
    placement = placement.copy()
    open_groups = sizes > 0
    part = max(1.0, float(sizes.sum()) / _PARTS)
    devices = random.permutation(len(capacities)).tolist()
    is_even = random.random()
    for turn, device in enumerate(devices):
        later = devices[turn + 1 :]
        there = np.flatnonzero(open_groups & legal[:, device])
        choices = legal[there][:, later].sum(axis=1)
        must = there[choices == 0]
        placement[must] = device
        open_groups[must] = False
        may = there[choices > 0]
        if not later or not len(may):
            continue
        room = float(capacities[device] - sizes[must].sum())
        # Full, or as full as all have to be.
        share = sizes[open_groups].sum() / max(1.0, room + float(capacities[later].sum()))
        wanted = room * (share + (1.0 - share) * random.random() * (random.random() > is_even))
        # What can go to few devices comes first, and what is large.
        order = np.lexsort([-sizes[may] * random.uniform(0.5, 1.0, len(may)), choices[choices > 0]])
        chosen = may[order][_closest_sum(sizes[may[order]] / part, wanted / part, room / part)]
        placement[chosen] = device
        open_groups[chosen] = False
    return placement


def _closest_sum(sizes: np.ndarray, wanted: float, most: float) -> list[int]:
    """Chooses sizes that add up to about what is wanted, and to no more than the most."""
    wholes = np.rint(sizes).astype(np.int64).tolist()
    limit = int(max(0.0, most))
    mask = (1 << (limit + 1)) - 1
    # Bit s of number k: the first k sizes have some with the sum s.
    sums = [1]
    for whole in wholes:
        sums.append((sums[-1] | (sums[-1] << whole)) & mask)
    target = min(limit, max(0, round(wanted)))
    below = (sums[-1] & ((1 << (target + 1)) - 1)).bit_length() - 1
    above = sums[-1] >> target
    next_above = target + (above & -above).bit_length() - 1 if above else -1
    left = next_above if above and next_above - target < target - below else below
    chosen = []
    for number in range(len(wholes), 0, -1):
        # The first ones are preferred.
        if not sums[number - 1] >> left & 1:
            chosen.append(number - 1)
            left -= wholes[number - 1]
    return chosen


def _best_exchange(
    sizes: np.ndarray,
    room: np.ndarray,
    legal: np.ndarray,
    placement: np.ndarray,
    crowded: np.ndarray,
    is_free: np.ndarray,
) -> tuple[int, int, int]:
    """Finds the exchange after which least is too much.

    Returns:
        A group, what it changes places with, -1 for nothing, and its new device; (-1, -1, -1) if
        there is none.
    """
    sources = placement[crowded]
    others = np.flatnonzero(is_free & (sizes > 0))
    others = others[:: -(-len(others) // _MAX_OTHERS)] if len(others) else others
    # Columns are devices, to move to, and then groups, to change places with.
    ends = np.concatenate([np.arange(len(room)), placement[others]])
    moved = sizes[crowded][:, None] - np.concatenate([np.zeros(len(room), np.int64), sizes[others]])
    allowed = legal[crowded][:, ends] & (sources[:, None] != ends) & (moved != 0)
    allowed[:, len(room) :] &= legal[others][:, sources].T
    excess = np.maximum(moved - room[ends], 0) - np.maximum(-room[ends], 0)
    excess += np.maximum(-room[sources][:, None] - moved, 0)
    excess -= np.maximum(-room[sources], 0)[:, None]
    excess = np.where(allowed, excess, np.iinfo(np.int64).max)
    row, column = divmod(int(np.argmin(excess)), len(ends))
    if not allowed[row, column]:
        return -1, -1, -1
    other = int(others[column - len(room)]) if column >= len(room) else -1
    return int(crowded[row]), other, int(ends[column])


def _excess(room: np.ndarray) -> int:
    return int(np.maximum(-room, 0).sum())
