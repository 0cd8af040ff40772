"""What graph partitioners are given: groups and devices with whole numbers for weights."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.undirected import undirected_graph
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs

__all__ = ["WeightedGraph", "accelerators", "link_costs", "weighted_graph", "whole_numbers"]

# Enough to tell any two groups apart that matter, and far from the end of 32 bits.
_MOST_WORK = 1 << 24
_MOST_POWER = 1000
# The fastest link costs 10, so that others may cost a tenth more; none costs more than 1000.
_LEAST_COST, _MOST_COST = 10, 1000


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedGraph:
    """The groups that have a choice, and what they send each other, without directions.

    The neighbors of node k are `neighbors[start[k] : start[k + 1]]`; every edge is there twice,
    once for each end.

    Attributes:
        members: int64 [num_nodes], the group that each node stands for.
        work: int32 [num_nodes], positive weights: what the groups take to compute.
        start: int32 [num_nodes + 1].
        neighbors: int32 [2 * num_edges].
        edge_bytes: int64 [2 * num_edges], what the two ends send each other.
        powers: float64 [num_devices], how much each device computes beside the fastest, above 0 and
            at most 1.
    """

    members: np.ndarray
    work: np.ndarray
    start: np.ndarray
    neighbors: np.ndarray
    edge_bytes: np.ndarray
    powers: np.ndarray

    @property
    def num_nodes(self) -> int:
        """How many groups have a choice."""
        return len(self.members)

    def device_powers(self) -> np.ndarray:
        """Scales the powers to int32 [num_devices], from 1 to 1000."""
        return np.maximum(np.rint(self.powers * _MOST_POWER), 1).astype(np.int32)

    def cut_bytes(self, parts: np.ndarray) -> int:
        """Sums the bytes of the edges whose ends are in different parts.

        Args:
            parts: int [num_nodes], the part of each node.
        """
        sources = np.repeat(np.arange(self.num_nodes), np.diff(self.start))
        return int(self.edge_bytes[parts[sources] != parts[self.neighbors]].sum()) // 2


def accelerators(problem: PlacementProblem) -> np.ndarray:
    """Finds the devices of another kind than device 0, int64; all if there are no others."""
    kinds = np.array([device.kind for device in problem.devices])
    others = np.flatnonzero(kinds != kinds[0])
    return others if others.size else np.arange(problem.num_devices)


def weighted_graph(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, devices: np.ndarray
) -> WeightedGraph:
    """Builds the graph to be distributed over some devices.

    Groups that have no choice, or may go to none of these devices, are left out. A group weighs its
    mean seconds on the accelerators that it may go to; a device is as powerful as the groups that
    it may have are fast on it.

    Args:
        groups: the groups and what they send each other.
        legal: bool [num_groups, num_devices], where they may go.
        problem: what they take where.
        devices: int [num_devices], those to distribute over.
    """
    secs = np.where(legal, device_secs(problem), np.inf)
    taken = np.isfinite(secs[:, devices])
    members = np.flatnonzero(taken.any(axis=1) & (legal.sum(axis=1) > 1))
    work = _mean_secs(secs[members], accelerators(problem))

    node_of = np.full(groups.num_groups, -1)
    node_of[members] = np.arange(len(members))
    graph = undirected_graph(groups)
    sources = node_of[np.repeat(np.arange(groups.num_groups), np.diff(graph.start))]
    targets = node_of[graph.neighbors]
    # The rows stay in order, as the numbers of nodes are in that of groups.
    kept = (sources >= 0) & (targets >= 0)
    ends = np.bincount(sources[kept], minlength=len(members))
    return WeightedGraph(
        members=members,
        work=whole_numbers(work, _MOST_WORK),
        start=np.concatenate([[0], np.cumsum(ends)]).astype(np.int32),
        neighbors=targets[kept].astype(np.int32),
        edge_bytes=graph.pair_bytes[kept],
        powers=_powers(work, secs[members][:, devices]),
    )


def _mean_secs(secs: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Averages seconds over some devices, float64 [num_rows].

    Groups that may go to none of those are averaged over all devices.
    """
    finite = np.isfinite(secs)
    favored = finite.copy()
    favored[:, np.setdiff1d(np.arange(secs.shape[1]), devices)] = False
    counted = np.where(favored.any(axis=1, keepdims=True), favored, finite)
    counts = np.maximum(counted.sum(axis=1), 1)
    return np.where(counted, secs, 0.0).sum(axis=1) / counts


def _powers(work: np.ndarray, secs: np.ndarray) -> np.ndarray:
    """Computes each device's work per second by that of the fastest, float64 [num_devices]."""
    finite = np.isfinite(secs)
    taken = np.where(finite, secs, 0.0).sum(axis=0)
    done = np.where(finite, work[:, None], 0.0).sum(axis=0)
    # A device that nothing takes any time on is like any other.
    powers = np.divide(done, taken, out=np.ones(secs.shape[1]), where=(taken > 0) & (done > 0))
    return np.asarray(powers / powers.max())


def link_costs(problem: PlacementProblem, devices: np.ndarray, num_bytes: float) -> np.ndarray:
    """Computes what it costs to send the same amount between devices, whichever way.

    Args:
        problem: has the links.
        devices: int [num_devices], those that matter.
        num_bytes: size of the transfers that are compared.

    Returns:
        int32 [num_devices, num_devices], symmetric: the mean of the seconds both ways, from 10 for
        the fastest link to 1000; 0 on the diagonal.
    """
    number = {device.name: index for index, device in enumerate(problem.devices)}
    secs = np.zeros([problem.num_devices, problem.num_devices])
    for link in problem.links:
        transfer_secs = link.latency_secs + num_bytes / link.bandwidth_bytes_per_sec
        secs[number[link.source], number[link.destination]] = transfer_secs
    secs = ((secs + secs.T) / 2)[np.ix_(devices, devices)]
    apart = ~np.eye(len(devices), dtype=np.bool_)
    fastest = max(secs[apart].min(initial=np.inf), secs.max(initial=0.0) / _MOST_COST)
    if not 0.0 < fastest < np.inf:
        return np.where(apart, _LEAST_COST, 0).astype(np.int32)
    costs = np.clip(np.rint(secs / fastest * _LEAST_COST), _LEAST_COST, _MOST_COST)
    return np.where(apart, costs, 0).astype(np.int32)


def whole_numbers(weights: np.ndarray, most: int) -> np.ndarray:
    """Weights in proportion, at least 1 each.

    Args:
        weights: [num_weights], not negative.
        most: the sum to come to at most; the weights are as large as this lets them. It is
            exceeded only if there are more weights.

    Returns:
        int32 [num_weights].

    Example:
        >>> whole_numbers(np.array([0.0, 0.25, 0.5]), 30).tolist()
        [1, 9, 18]
    """
    total = float(weights.sum())
    if not total > 0.0:
        return np.ones(len(weights), np.int32)
    # Raising to 1 adds less than 1 per weight.
    room = max(most - len(weights), 0)
    return np.maximum(np.floor(weights * (room / total)), 1).astype(np.int32)
