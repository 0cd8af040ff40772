"""The input of graph partitioners: groups and devices with integer weights."""

from __future__ import annotations

import dataclasses

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.undirected import build_undirected_graph
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import device_secs

__all__ = [
    "WeightedGraph",
    "build_weighted_graph",
    "compute_link_costs",
    "compute_powers",
    "list_accelerators",
    "scale_to_integers",
]

# Fine enough to distinguish all groups of relevant work, and far from the limit of 32 bits.
_MAX_TOTAL_WORK = 1 << 24
_MAX_POWER = 1000
# The cost 10 of the fastest link gives other links a resolution of a tenth.
_MIN_LINK_COST, _MAX_LINK_COST = 10, 1000


@dataclasses.dataclass(frozen=True, eq=False)
class WeightedGraph:
    """The undirected graph of the groups that may go to several devices.

    The neighbors of node k are `neighbors[start[k] : start[k + 1]]`; every edge is there twice,
    once for each end.

    Attributes:
        members: int64 [num_nodes], the group of each node.
        work: int32 [num_nodes], positive weights in proportion to the compute times of the groups.
        start: int32 [num_nodes + 1].
        neighbors: int32 [2 * num_edges].
        edge_bytes: int64 [2 * num_edges], the bytes between the two ends, in both directions.
        powers: float64 [num_devices], the computing power of each device as a share of that of the
            fastest, above 0 and at most 1.
    """

    members: np.ndarray
    work: np.ndarray
    start: np.ndarray
    neighbors: np.ndarray
    edge_bytes: np.ndarray
    powers: np.ndarray

    @property
    def num_nodes(self) -> int:
        """The number of groups in the graph."""
        return len(self.members)

    def scale_powers(self) -> np.ndarray:
        """Scales the powers to int32 [num_devices], from 1 to 1000."""
        return np.maximum(np.rint(self.powers * _MAX_POWER), 1).astype(np.int32)

    def compute_cut_bytes(self, parts: np.ndarray) -> int:
        """Sums the bytes of the edges whose ends are in different parts.

        Args:
            parts: int [num_nodes], the part of each node.
        """
        sources = np.repeat(np.arange(self.num_nodes), np.diff(self.start))
        return int(self.edge_bytes[parts[sources] != parts[self.neighbors]].sum()) // 2


def list_accelerators(problem: PlacementProblem) -> np.ndarray:
    """Finds the devices of another kind than device 0, int64; all if there are no others."""
    kinds = np.array([device.kind for device in problem.devices])
    others = np.flatnonzero(kinds != kinds[0])
    return others if others.size else np.arange(problem.num_devices)


def build_weighted_graph(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, devices: np.ndarray
) -> WeightedGraph:
    """Builds the graph of the groups to distribute over some devices.

    Groups with a single legal device, or that may go to none of these devices, are left out. The
    weight of a group is its mean seconds on the accelerators that it may go to; the power of a
    device is the inverse of the time that its legal groups take on it.

    Args:
        groups: the groups and the tensors between them.
        legal: bool [num_groups, num_devices], true where a group may go.
        problem: the placement problem, with the costs of operations on the devices.
        devices: int [num_devices], the devices to distribute over.
    """
    secs = np.where(legal, device_secs(problem), np.inf)
    taken = np.isfinite(secs[:, devices])
    members = np.flatnonzero(taken.any(axis=1) & (legal.sum(axis=1) > 1))
    work = _average_secs(secs[members], list_accelerators(problem))

    node_of = np.full(groups.num_groups, -1)
    node_of[members] = np.arange(len(members))
    graph = build_undirected_graph(groups)
    sources = node_of[np.repeat(np.arange(groups.num_groups), np.diff(graph.start))]
    targets = node_of[graph.neighbors]
    # The edges stay sorted by node, because nodes are numbered in the order of groups.
    kept = (sources >= 0) & (targets >= 0)
    ends = np.bincount(sources[kept], minlength=len(members))
    return WeightedGraph(
        members=members,
        work=scale_to_integers(work, _MAX_TOTAL_WORK),
        start=np.concatenate([[0], np.cumsum(ends)]).astype(np.int32),
        neighbors=targets[kept].astype(np.int32),
        edge_bytes=graph.pair_bytes[kept],
        powers=_divide_work(work, secs[members][:, devices]),
    )


def compute_powers(problem: PlacementProblem, devices: np.ndarray) -> np.ndarray:
    """Computes the computing powers of devices relative to the fastest of them.

    Args:
        problem: the placement problem, with the costs of operations on the devices.
        devices: int [num_devices], the devices.

    Returns:
        float64 [num_devices], above 0 and at most 1; exactly 1 for devices that are equally fast.
    """
    secs = device_secs(problem)
    return _divide_work(_average_secs(secs, devices), secs[:, devices])


def _average_secs(secs: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Averages seconds over some devices, float64 [num_rows].

    Groups that may go to none of these are averaged over all devices.
    """
    finite = np.isfinite(secs)
    favored = finite.copy()
    favored[:, np.setdiff1d(np.arange(secs.shape[1]), devices)] = False
    counted = np.where(favored.any(axis=1, keepdims=True), favored, finite)
    counts = np.maximum(counted.sum(axis=1), 1)
    return np.where(counted, secs, 0.0).sum(axis=1) / counts


def _divide_work(work: np.ndarray, secs: np.ndarray) -> np.ndarray:
    """Computes the work per second of devices relative to the fastest, float64 [num_devices]."""
    finite = np.isfinite(secs)
    taken = np.where(finite, secs, 0.0).sum(axis=0)
    done = np.where(finite, work[:, None], 0.0).sum(axis=0)
    # A device on which no group takes time counts as power 1.
    powers = np.divide(done, taken, out=np.ones(secs.shape[1]), where=(taken > 0) & (done > 0))
    return np.asarray(powers / powers.max())


def compute_link_costs(
    problem: PlacementProblem, devices: np.ndarray, num_bytes: float
) -> np.ndarray:
    """Computes the relative costs of transfers of the same size between devices.

    Args:
        problem: the placement problem, with the links.
        devices: int [num_devices], the devices.
        num_bytes: the size of the transfers.

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
    fastest = max(secs[apart].min(initial=np.inf), secs.max(initial=0.0) / _MAX_LINK_COST)
    if not 0.0 < fastest < np.inf:
        return np.where(apart, _MIN_LINK_COST, 0).astype(np.int32)
    costs = np.clip(np.rint(secs / fastest * _MIN_LINK_COST), _MIN_LINK_COST, _MAX_LINK_COST)
    return np.where(apart, costs, 0).astype(np.int32)


def scale_to_integers(weights: np.ndarray, most: int) -> np.ndarray:
    """Scales weights to integers in proportion, at least 1 each.

    Args:
        weights: [num_weights], not negative.
        most: the largest sum of the integers, which are as large as it allows. The sum exceeds
            it only if there are more weights.

    Returns:
        int32 [num_weights].

    Example:
        >>> scale_to_integers(np.array([0.0, 0.25, 0.5]), 30).tolist()
        [1, 9, 18]
    """
    total = float(weights.sum())
    if not total > 0.0:
        return np.ones(len(weights), np.int32)
    # Reserve 1 for each weight, because raising small weights to 1 adds less than that.
    room = max(most - len(weights), 0)
    return np.maximum(np.floor(weights * (room / total)), 1).astype(np.int32)
