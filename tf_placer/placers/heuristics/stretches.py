"""Lines through the graph, cut into stretches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.contiguous import equal_cuts
from tf_placer.placers.heuristics.parallel_lines import bands_of_lines, chains, parallel_lines
from tf_placer.placers.heuristics.weighted_graph import accelerators
from tf_placer.placers.placer import check_legal
from tf_placer.problem.path_secs import least_secs, longest_after
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["Stretches"]

# More lines than this are not sorted by what they send each other, which takes their cube.
_MOST_SORTED = 512


class Stretches(CandidateList):
    """Cuts what repeats itself into pipelines: stretches of neighboring lines, one per device.

    Lines are found by the shape of the graph. Those that are there at the same time, as the layers
    of an encoder are, are a band; each band is put in order, and cut into stretches of equal work
    by dynamic programming, so that every device has a part of every band. Lines are in the order in
    which they begin, or in that which puts those side by side that send each other much. Proposes
    both, for finer and coarser lines. What does not repeat itself is cut into stretches of chains.

    References:
        Fiedler, A Property of Eigenvectors of Nonnegative Symmetric Matrices, Czechoslovak
        Mathematical Journal 25, 1975: the second order.
    """

    name = "stretches"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Makes the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: what the operations of the groups cost on these devices.
        """
        check_legal(groups, legal)
        super().__init__(groups, legal, seed=seed, candidates=_candidates(groups, problem))


def _candidates(groups: GroupGraph, problem: PlacementProblem) -> Iterator[np.ndarray]:
    """Yields the wanted device of every group, int64 [num_groups]."""
    devices = accelerators(problem)
    # When groups begin at the latest, counted from the end of the step. Topological numbers
    # would not do: they may have one line after the other.
    secs = least_secs(problem)
    when = np.zeros(groups.num_groups)
    np.minimum.at(when, problem.groups, -(longest_after(problem, secs) + secs))
    for lines in parallel_lines(groups) or [chains(groups)[0]]:
        bands = bands_of_lines(lines, when)
        work = np.bincount(lines, groups.work, len(bands))
        for order in _orders(groups, lines, when):
            by_band = order[np.argsort(bands[order], kind="stable")]
            ends = np.flatnonzero(np.diff(bands[by_band])) + 1
            stretch = np.empty(len(order), np.int64)
            for band in np.split(by_band, ends):
                stretch[band] = equal_cuts(work[band], len(devices))
            yield devices[stretch[lines]]


def _orders(groups: GroupGraph, lines: np.ndarray, when: np.ndarray) -> Iterator[np.ndarray]:
    """Yields orders of the lines, int64 [num_lines]."""
    count = int(lines.max()) + 1
    middle = np.bincount(lines, when, count) / np.bincount(lines, minlength=count)
    yield np.argsort(middle, kind="stable")
    if count > _MOST_SORTED:
        return
    ends = lines[groups.edges.astype(np.int64)].reshape(-1, 2)
    # Something is sent in any case; without that a graph might fall apart.
    sent = np.full([count, count], 1e-9)
    share = groups.edge_bytes / max(float(groups.edge_bytes.mean()), 1.0) if len(ends) else 0.0
    np.add.at(sent, (ends[:, 0], ends[:, 1]), share)
    sent += sent.T
    np.fill_diagonal(sent, 0.0)
    laplacian = np.diag(sent.sum(axis=0)) - sent
    second = np.linalg.eigh(laplacian)[1][:, min(1, count - 1)]
    # From where the graph begins.
    if np.dot(second - second.mean(), middle) < 0:
        second = -second
    yield np.argsort(second, kind="stable")
