"""Branches of the graph, balanced in every window of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.parallel_lines import (
    bands_of_lines,
    chains,
    longest_ways,
    parallel_lines,
)
from tf_placer.placers.heuristics.weighted_graph import accelerators
from tf_placer.placers.placer import check_legal
from tf_placer.problem.path_secs import least_secs, longest_after, longest_before
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Branches"]

# A step is looked at in so many parts.
_WINDOWS = 64
# Lines with less than this share of the mean are all about as large.
_LEAST = 1e-3


class Branches(CandidateList):
    """Gives each branch, the largest first, to the device that has the least to do meanwhile.

    Branches are lines (see `parallel_lines`), such as towers that share no more than parameters;
    ways that follow the longest rest of the step; and chains. Proposes four ways to share out
    each of these: the largest first, whatever there is to do in each window of time being balanced;
    the same with those that begin first coming before others of about the same size; that again,
    with the whole step balanced, too; and band by band (see `bands_of_lines`), the largest first.

    References:
        Graham, Bounds on Multiprocessing Timing Anomalies, SIAM Journal on Applied Mathematics
        17(2), 1969: longest processing time first.
    """

    name = "branches"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Makes the proposals; see `Stretches`."""
        check_legal(groups, legal)
        super().__init__(groups, legal, seed=seed, candidates=_candidates(groups, problem))


def _candidates(groups: GroupGraph, problem: PlacementProblem) -> Iterator[np.ndarray]:
    """Yields the wanted device of every group, int64 [num_groups]."""
    devices = accelerators(problem)
    secs = least_secs(problem)
    starts = np.full(groups.num_groups, np.inf)
    np.minimum.at(starts, problem.groups, longest_before(problem, secs))
    rests = np.zeros(groups.num_groups)
    np.maximum.at(rests, problem.groups, longest_after(problem, secs) + secs)
    windows = _windows(groups.work, starts)
    ways, pieces = longest_ways(groups, rests), chains(groups)[0]
    for lines in [*parallel_lines(groups)[::-1], ways, pieces]:
        count = int(lines.max()) + 1
        work = np.zeros([count, _WINDOWS])
        np.add.at(work, (lines, windows), groups.work)
        first = np.full(count, np.inf)
        np.minimum.at(first, lines, starts)
        sizes = work.sum(axis=1)
        about = np.floor(np.log2(sizes + _LEAST * sizes.mean() + 1e-300))
        early, whole = np.lexsort([first, -about]), np.hstack([work, sizes[:, None]])
        for order, loads in (
            (early, work),
            (np.argsort(-sizes, kind="stable"), work),
            (early, whole),
        ):
            yield devices[_share_out(order, loads, len(devices))[lines]]
        bands = bands_of_lines(lines, -rests)
        order = np.lexsort([-sizes, bands])
        device_of = np.empty(count, np.int64)
        for band in np.split(order, np.flatnonzero(np.diff(bands[order])) + 1):
            shared = _share_out(np.arange(len(band)), sizes[band, None], len(devices))
            device_of[band] = shared
        yield devices[device_of[lines]]


def _windows(work: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Cuts the step into windows of equal work, int64 [num_groups]: that of each group.

    Args:
        work: float64 [num_groups].
        starts: float64 [num_groups], when groups can begin.
    """
    order = np.argsort(starts, kind="stable")
    done = np.cumsum(work[order])
    windows = np.empty(len(work), np.int64)
    windows[order] = np.minimum(done / max(done[-1], 1e-300) * _WINDOWS, _WINDOWS - 1)
    return windows


def _share_out(order: np.ndarray, work: np.ndarray, num_devices: int) -> np.ndarray:
    """Gives each line to the device that has the least to do when the line has.

    Args:
        order: int64 [num_lines], which line comes when.
        work: float64 [num_lines, num_windows], what there is to do of each line in each window.
        num_devices: how many devices.

    Returns:
        int64 [num_lines], the device of each line.
    """
    taken = np.zeros([num_devices, work.shape[1]])
    device_of = np.empty(len(work), np.int64)
    for line in order.tolist():
        # The squares of all loads rise by twice this, and by what is the same everywhere.
        device = int((taken @ work[line]).argmin())
        taken[device] += work[line]
        device_of[line] = device
    return device_of
