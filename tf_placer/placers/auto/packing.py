"""A search for distributions of groups in which no device exceeds its memory."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.heuristics.group_memory import estimate_group_memories
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Packer", "pack", "repack"]

# Rounding sizes to this many units in all bounds the tables of subset sums.
_SIZE_UNITS = 2**16
_MAX_EXCHANGED_GROUPS, _MAX_EXCHANGE_PARTNERS = 64, 512
_MAX_EXCHANGES = 300
# All devices together lack memory, so that no distribution fits: one that comes close is enough.
_MAX_HOPELESS_EXCHANGES = 50
_MAX_TABU_EXCHANGES = 8


class Packer:
    """Packs groups anew where a step needs more memory than there is.

    The memory that devices need beside the sizes of their groups, such as copies from other
    devices, is taken from the simulation of the previous packing.
    """

    def __init__(
        self,
        problem: PlacementProblem,
        legal: np.ndarray,
        seed: int | np.random.SeedSequence,
        *,
        only_resident: bool,
    ) -> None:
        """Determines the sizes of the groups.

        Args:
            problem: the placement problem.
            legal: bool [num_groups, num_devices], true where a group may go.
            seed: seeds all choices.
            only_resident: whether the size of a group is the memory that it holds throughout the
                step, instead of an estimate of its peak.
        """
        if only_resident:
            self._sizes = np.zeros(problem.num_groups, np.int64)
            np.add.at(self._sizes, problem.groups, problem.resident_bytes)
        else:
            memories = estimate_group_memories(problem)
            self._sizes = np.max([memory.kept_bytes for memory in memories], axis=0)
        self._capacities = np.array([device.memory_bytes for device in problem.devices])
        self._legal = legal
        self._random = np.random.default_rng(seed)

    def repack(self, placement: np.ndarray, peak_bytes: np.ndarray) -> np.ndarray:
        """Changes a placement so that it may fit.

        Args:
            placement: int32 [num_groups].
            peak_bytes: int64 [num_devices], the simulated peaks of its devices.

        Returns:
            int32 [num_groups]; the placement itself if nothing better was found.
        """
        held = np.zeros(len(self._capacities), np.int64)
        np.add.at(held, placement, self._sizes)
        capacities = self._capacities - (peak_bytes - held)
        return repack(self._sizes, capacities, self._legal, placement, self._random)

    def pack(self, placement: np.ndarray) -> np.ndarray:
        """Builds a placement from scratch, in which only groups of no size stay in place.

        Args:
            placement: int32 [num_groups].

        Returns:
            int32 [num_groups]; it may still exceed the memory.
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
    """Changes a distribution until it fits, by the exchanges that leave the least excess.

    A group on an overfull device moves to another device, or changes places with a group there.
    A moved group is tabu for a while, so that the search leaves local optima.

    Args:
        sizes: int64 [num_groups], bytes.
        capacities: int64 [num_devices], bytes.
        legal: bool [num_groups, num_devices], true where a group may go.
        placement: int32 [num_groups], the first distribution.
        random: draws groups and the durations for which they are tabu.
        max_exchanges: the most moves and exchanges to make.

    Returns:
        int32 [num_groups], the distribution with the least excess on all devices together.

    References:
        Glover, Tabu Search, ORSA Journal on Computing 1(3), 1989.
    """
    placement = placement.copy()
    filled = np.zeros(len(capacities), np.int64)
    np.add.at(filled, placement, sizes)
    room = capacities - filled
    best, best_excess = placement.copy(), _compute_excess(room)
    tabu_until = np.zeros(len(sizes), np.int64)
    if room.sum() < 0:
        max_exchanges = min(max_exchanges, _MAX_HOPELESS_EXCHANGES)
    for number in range(max_exchanges):
        if not best_excess:
            break
        crowded = np.flatnonzero((room[placement] < 0) & (tabu_until <= number) & (sizes > 0))
        if not len(crowded):
            continue
        crowded = random.permutation(crowded)[:_MAX_EXCHANGED_GROUPS]
        group, other, to = _find_best_exchange(
            sizes, room, legal, placement, crowded, tabu_until <= number
        )
        if group < 0:
            continue
        source = placement[group]
        moved = sizes[group] - (sizes[other] if other >= 0 else 0)
        room[source] += moved
        room[to] -= moved
        placement[group] = to
        tabu_until[group] = number + 2 + random.integers(_MAX_TABU_EXCHANGES)
        if other >= 0:
            placement[other] = source
            tabu_until[other] = number + 2 + random.integers(_MAX_TABU_EXCHANGES)
        excess = _compute_excess(room)
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
    """Distributes groups from scratch: fills the devices one by one by solving subset sums.

    Args:
        sizes: int64 [num_groups], bytes.
        capacities: int64 [num_devices], bytes.
        legal: bool [num_groups, num_devices], true where a group may go.
        placement: int32 [num_groups], the devices of the groups of size 0.
        random: draws the order of the devices and groups, and the fill levels of devices.

    Returns:
        int32 [num_groups]. The last devices may be overfull.

    References:
        Caprara and Pferschy, Worst-case analysis of the subset sum algorithm for bin packing,
        Operations Research Letters 32(2), 2004. Even shares for all devices are our addition.
    """
    placement = placement.copy()
    open_groups = sizes > 0
    part = max(1.0, float(sizes.sum()) / _SIZE_UNITS)
    devices = random.permutation(len(capacities)).tolist()
    is_even = random.random()
    for position, device in enumerate(devices):
        later = devices[position + 1 :]
        there = np.flatnonzero(open_groups & legal[:, device])
        choices = legal[there][:, later].sum(axis=1)
        must = there[choices == 0]
        placement[must] = device
        open_groups[must] = False
        may = there[choices > 0]
        if not later or not len(may):
            continue
        room = float(capacities[device] - sizes[must].sum())
        # Fill the device completely, or to the mean of all open devices, or between the two.
        share = sizes[open_groups].sum() / max(1.0, room + float(capacities[later].sum()))
        wanted = room * (share + (1.0 - share) * random.random() * (random.random() > is_even))
        # Groups with few choices come first, then large ones.
        order = np.lexsort([-sizes[may] * random.uniform(0.5, 1.0, len(may)), choices[choices > 0]])
        sums = _choose_closest_sum(sizes[may[order]] / part, wanted / part, room / part)
        chosen = may[order][sums]
        placement[chosen] = device
        open_groups[chosen] = False
    return placement


def _choose_closest_sum(sizes: np.ndarray, wanted: float, most: float) -> list[int]:
    """Chooses sizes whose sum is closest to the wanted sum and does not exceed the most."""
    wholes = np.rint(sizes).astype(np.int64).tolist()
    limit = int(max(0.0, most))
    mask = (1 << (limit + 1)) - 1
    # Bit s of sums[k] is set if some of the first k sizes add up to s.
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
        # Skipping a later size whenever possible prefers the first sizes.
        if not sums[number - 1] >> left & 1:
            chosen.append(number - 1)
            left -= wholes[number - 1]
    return chosen


def _find_best_exchange(
    sizes: np.ndarray,
    room: np.ndarray,
    legal: np.ndarray,
    placement: np.ndarray,
    crowded: np.ndarray,
    is_free: np.ndarray,
) -> tuple[int, int, int]:
    """Finds the exchange that leaves the least excess.

    Returns:
        A group, the group it changes places with or -1, and its new device; (-1, -1, -1) if no
        exchange is allowed.
    """
    sources = placement[crowded]
    others = np.flatnonzero(is_free & (sizes > 0))
    others = others[:: -(-len(others) // _MAX_EXCHANGE_PARTNERS)] if len(others) else others
    # The columns are the devices to move to, followed by the groups to change places with.
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


def _compute_excess(room: np.ndarray) -> int:
    return int(np.maximum(-room, 0).sum())
