"""The papers' Expert: contiguous parts of the network, one per device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.problem.accelerators import find_accelerators, is_gpu
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Contiguous", "cut_equally"]


class Contiguous(CandidateList):
    """Cuts the sequence of layers into one contiguous part per device.

    Proposes parts of equal numbers of layers, of equal numbers of operations and of equal work,
    with the devices in order, and the same with the devices reversed. The proposals on GPUs alone
    come first. Where the kinds of devices are unknown, and there are more than two, those without
    device 0 do: it is the CPU of the process that holds the session.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2, "Expert-designed".
    """

    name = "expert"

    def __init__(
        self,
        groups: GroupGraph,
        legal: np.ndarray,
        *,
        seed: int = 0,
        problem: PlacementProblem | None = None,
    ) -> None:
        """Prepares the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`; nothing is random.
            problem: the placement problem, for the kinds of its devices; None if it is unknown.
        """
        everywhere = np.arange(legal.shape[-1])
        first = everywhere[1:] if len(everywhere) > 2 else everywhere
        if problem is not None and sum(map(is_gpu, problem.devices)) > 1:
            first = find_accelerators(problem)
        sets = [first, everywhere] if len(first) < len(everywhere) else [everywhere]
        super().__init__(groups, legal, seed=seed, candidates=_generate_candidates(groups, sets))


def _generate_candidates(
    groups: GroupGraph, device_sets: Sequence[np.ndarray]
) -> Iterator[np.ndarray]:
    """Yields the wanted device of every group, int [num_groups], cut by cut."""
    layer_numbers, layers = np.unique(groups.layers, return_inverse=True)
    num_operations = groups.type_counts.sum(axis=1)
    weights = [
        np.ones(len(layer_numbers)),
        np.bincount(layers, num_operations, len(layer_numbers)),
        np.bincount(layers, groups.work, len(layer_numbers)),
    ]
    for devices in device_sets:
        cuts = [cut_equally(weight, len(devices))[layers] for weight in weights]
        yield from (devices[cut] for cut in cuts)
        yield from (devices[::-1][cut] for cut in cuts)


def cut_equally(
    weights: np.ndarray, num_parts: int, powers: np.ndarray | None = None
) -> np.ndarray:
    """Cuts a sequence into contiguous parts whose weights are as equal as possible.

    The sum of the squared weights of the parts is minimal, each divided by the power of the part;
    without other limits, weights in proportion to the powers are the best. Of several such cuts,
    the one with the longest first parts is chosen. No part is empty unless there are fewer items
    than parts; then every item is a part of its own.

    Args:
        weights: float64 [num_items], not negative.
        num_parts: the number of parts.
        powers: float64 [num_parts], positive; equal powers when None.

    Returns:
        int64 [num_items], the part of each item, from 0 and never decreasing.

    Example:
        >>> cut_equally(np.array([1.0, 1.0, 10.0]), 2).tolist()
        [0, 0, 1]
        >>> cut_equally(np.ones(6), 2, np.array([1.0, 0.5])).tolist()
        [0, 0, 0, 0, 1, 1]
    """
    num_items = len(weights)
    num_parts = min(num_parts, num_items)
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    # least[i] is the least sum of squares when the first i items are cut into `part` parts.
    least = np.where(np.arange(num_items + 1) == 0, 0.0, np.inf)
    last_cuts = np.zeros([num_parts, num_items + 1], np.int64)
    for part in range(num_parts):
        power = 1.0 if powers is None else float(powers[part])
        least, last_cuts[part] = _add_part(least, ends, power)
    parts = np.zeros(num_items, np.int64)
    end = num_items
    for part in reversed(range(num_parts)):
        parts[last_cuts[part, end] : end] = part
        end = last_cuts[part, end]
    return parts


def _add_part(least: np.ndarray, ends: np.ndarray, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Computes the least sums of squares with one more part, and the begin of that part.

    The best cut never moves back as items are added, because squares are convex. Divide and
    conquer therefore processes middle items first, all of a depth at once, whose cuts bound those
    of the others: time and space are O(n log n) and O(n) in the number of items.

    Args:
        least: float64 [num_items + 1], the least sum of squares of the first i items.
        ends: float64 [num_items + 1], the weight of the first i items.
        power: the power of the part.

    Returns:
        float64 [num_items + 1] and int64 [num_items + 1], the last of the best cuts.
    """
    count = len(ends)
    longer, cuts = np.full(count, np.inf), np.zeros(count, np.int64)
    # The best cuts of items in [first, last) are in [low, high].
    first, last = np.array([1]), np.array([count])
    low, high = np.array([0]), np.array([count - 1])
    while len(first):
        middle = (first + last) // 2
        sizes = np.minimum(high, middle - 1) - low + 1
        starts = np.cumsum(sizes) - sizes
        tried = np.arange(sizes.sum()) + np.repeat(low - starts, sizes)
        sums = least[tried] + (np.repeat(ends[middle], sizes) - ends[tried]) ** 2 / power
        longer[middle] = np.minimum.reduceat(sums, starts)
        is_best = sums == np.repeat(longer[middle], sizes)
        cuts[middle] = np.maximum.reduceat(np.where(is_best, tried, -1), starts)
        first, last, low, high = (
            np.concatenate(pair)
            for pair in (
                (first, middle + 1),
                (middle, last),
                (low, cuts[middle]),
                (cuts[middle], high),
            )
        )
        some = first < last
        first, last, low, high = first[some], last[some], low[some], high[some]
    return longer, cuts
