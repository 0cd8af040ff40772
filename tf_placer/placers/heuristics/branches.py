"""Branches of the graph, balanced in every window of time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.linear_clusters import (
    find_bands,
    find_chains,
    find_linear_clusters,
    find_longest_paths,
)
from tf_placer.placers.heuristics.weighted_graph import compute_powers, list_accelerators
from tf_placer.placers.placer import check_legal
from tf_placer.problem.path_secs import least_secs, longest_after, longest_before
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Branches"]

_NUM_WINDOWS = 64
# Clusters below this share of the mean size count as equally large.
_MIN_SIZE_SHARE = 1e-3


class Branches(CandidateList):
    """Assigns each branch, the largest first, to the least loaded device in the time of the branch.

    Branches are linear clusters (see `find_linear_clusters`), such as towers that share only
    parameters; paths along the longest rest of the step (see `find_longest_paths`); and chains.
    Proposes four assignments of each of these: the largest first, with the load balanced in each
    window of time; the same, but of branches of about the same size the earliest first; that with
    the load of the whole step balanced as well; and band by band (see `find_bands`), the largest
    first. The load of a device is its work, divided by its power.

    References:
        Graham, Bounds on Multiprocessing Timing Anomalies, SIAM Journal on Applied Mathematics
        17(2), 1969: longest processing time first.
    """

    name = "branches"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Prepares the proposals; see `PipelineStages`."""
        check_legal(groups, legal)
        super().__init__(groups, legal, seed=seed, candidates=_generate_candidates(groups, problem))


def _generate_candidates(groups: GroupGraph, problem: PlacementProblem) -> Iterator[np.ndarray]:
    """Yields the wanted device of every group, int64 [num_groups]."""
    devices = list_accelerators(problem)
    powers = compute_powers(problem, devices)
    secs = least_secs(problem)
    starts = np.full(groups.num_groups, np.inf)
    np.minimum.at(starts, problem.groups, longest_before(problem, secs))
    rests = np.zeros(groups.num_groups)
    np.maximum.at(rests, problem.groups, longest_after(problem, secs) + secs)
    windows = _assign_windows(groups.work, starts)
    paths, chains = find_longest_paths(groups, rests), find_chains(groups)[0]
    for clusters in [*find_linear_clusters(groups)[::-1], paths, chains]:
        count = int(clusters.max()) + 1
        work = np.zeros([count, _NUM_WINDOWS])
        np.add.at(work, (clusters, windows), groups.work)
        first = np.full(count, np.inf)
        np.minimum.at(first, clusters, starts)
        sizes = work.sum(axis=1)
        about = np.floor(np.log2(sizes + _MIN_SIZE_SHARE * sizes.mean() + 1e-300))
        early, whole = np.lexsort([first, -about]), np.hstack([work, sizes[:, None]])
        for order, loads in (
            (early, work),
            (np.argsort(-sizes, kind="stable"), work),
            (early, whole),
        ):
            yield devices[_share_out(order, loads, powers)[clusters]]
        bands = find_bands(clusters, -rests)
        order = np.lexsort([-sizes, bands])
        device_of = np.empty(count, np.int64)
        for band in np.split(order, np.flatnonzero(np.diff(bands[order])) + 1):
            shared = _share_out(np.arange(len(band)), sizes[band, None], powers)
            device_of[band] = shared
        yield devices[device_of[clusters]]


def _assign_windows(work: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Cuts the step into windows of equal work.

    Args:
        work: float64 [num_groups].
        starts: float64 [num_groups], the earliest starts of the groups.

    Returns:
        int64 [num_groups], the window of each group.
    """
    order = np.argsort(starts, kind="stable")
    done = np.cumsum(work[order])
    windows = np.empty(len(work), np.int64)
    windows[order] = np.minimum(done / max(done[-1], 1e-300) * _NUM_WINDOWS, _NUM_WINDOWS - 1)
    return windows


def _share_out(order: np.ndarray, work: np.ndarray, powers: np.ndarray) -> np.ndarray:
    """Assigns each cluster to the device that is least loaded in the windows of the cluster.

    Args:
        order: int64 [num_clusters], the clusters in the order of assignment.
        work: float64 [num_clusters, num_windows], the work of each cluster in each window.
        powers: float64 [num_devices], the computing powers of the devices.

    Returns:
        int64 [num_clusters], the device of each cluster.
    """
    taken = np.zeros([len(powers), work.shape[1]])
    device_of = np.empty(len(work), np.int64)
    are_equal = bool((powers == powers[0]).all())
    for cluster in order.tolist():
        # This minimizes the sum of squared work, each divided by the power, which rises by twice
        # this cost. The squares of the cluster itself are the same on devices of equal powers.
        own = 0.0 if are_equal else work[cluster] @ work[cluster] / 2
        device = int(((taken @ work[cluster] + own) / powers).argmin())
        taken[device] += work[cluster]
        device_of[cluster] = device
    return device_of
