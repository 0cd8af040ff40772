"""Pipeline stages of linear clusters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.contiguous import cut_equally
from tf_placer.placers.heuristics.linear_clusters import (
    find_bands,
    find_chains,
    find_linear_clusters,
)
from tf_placer.placers.heuristics.weighted_graph import compute_powers, list_accelerators
from tf_placer.placers.placer import check_legal
from tf_placer.problem.path_secs import least_secs, longest_after
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["PipelineStages"]

# The spectral order takes cubic time in the number of clusters.
_MAX_SPECTRAL_CLUSTERS = 512


class PipelineStages(CandidateList):
    """Cuts repetitive graphs into pipeline stages of neighboring linear clusters, one per device.

    Linear clusters are found by the shape of the graph. Clusters that overlap in time, as the
    layers of an encoder do, form a band. The clusters of a band are ordered, and cut into stages of
    equal work by dynamic programming, so that every device has a stage of every band. The order is
    by time, or the spectral order, which puts clusters with much traffic next to each other.
    Proposes both, for finer and coarser clusters. A graph that does not repeat itself is cut into
    stages of chains. The stages of faster devices have more work.

    References:
        Fiedler, A Property of Eigenvectors of Nonnegative Symmetric Matrices, Czechoslovak
        Mathematical Journal 25, 1975: the spectral order.
    """

    name = "stretches"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Prepares the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: the placement problem, with the costs of operations on the devices.
        """
        check_legal(groups, legal)
        super().__init__(groups, legal, seed=seed, candidates=_generate_candidates(groups, problem))


def _generate_candidates(groups: GroupGraph, problem: PlacementProblem) -> Iterator[np.ndarray]:
    """Yields the wanted device of every group, int64 [num_groups]."""
    devices = list_accelerators(problem)
    powers = compute_powers(problem, devices)
    # The latest starts of groups, counted from the end of the step. A topological order could
    # have one cluster after the other even if they overlap in time.
    secs = least_secs(problem)
    times = np.zeros(groups.num_groups)
    np.minimum.at(times, problem.groups, -(longest_after(problem, secs) + secs))
    for clusters in find_linear_clusters(groups) or [find_chains(groups)[0]]:
        bands = find_bands(clusters, times)
        work = np.bincount(clusters, groups.work, len(bands))
        for order in _generate_orders(groups, clusters, times):
            by_band = order[np.argsort(bands[order], kind="stable")]
            ends = np.flatnonzero(np.diff(bands[by_band])) + 1
            stages = np.empty(len(order), np.int64)
            for band in np.split(by_band, ends):
                stages[band] = cut_equally(work[band], len(devices), powers)
            yield devices[stages[clusters]]


def _generate_orders(
    groups: GroupGraph, clusters: np.ndarray, times: np.ndarray
) -> Iterator[np.ndarray]:
    """Yields orders of the clusters, int64 [num_clusters]."""
    count = int(clusters.max()) + 1
    middle = np.bincount(clusters, times, count) / np.bincount(clusters, minlength=count)
    yield np.argsort(middle, kind="stable")
    if count > _MAX_SPECTRAL_CLUSTERS:
        return
    ends = clusters[groups.edges.astype(np.int64)].reshape(-1, 2)
    # A little traffic between all clusters keeps the graph connected.
    sent = np.full([count, count], 1e-9)
    share = groups.edge_bytes / max(float(groups.edge_bytes.mean()), 1.0) if len(ends) else 0.0
    np.add.at(sent, (ends[:, 0], ends[:, 1]), share)
    sent += sent.T
    np.fill_diagonal(sent, 0.0)
    laplacian = np.diag(sent.sum(axis=0)) - sent
    second = np.linalg.eigh(laplacian)[1][:, min(1, count - 1)]
    # The sign of an eigenvector is arbitrary: order from the inputs to the outputs.
    if np.dot(second - second.mean(), middle) < 0:
        second = -second
    yield np.argsort(second, kind="stable")
