"""Estimates of the time that the edges between groups cost."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["edge_secs"]


def edge_secs(problem: PlacementProblem, groups: GroupGraph) -> np.ndarray:
    """Estimates the time to send each edge's tensors from device to device, on an average link.

    Args:
        problem: the problem, which has the links.
        groups: the groups of the problem, which have the edges.

    Returns:
        float64 [num_edges], in seconds; 0 if there is only one device.
    """
    if not problem.links:
        return np.zeros(len(groups.edges))
    latency_secs = np.mean([link.latency_secs for link in problem.links])
    secs_per_byte = np.mean([1.0 / link.bandwidth_bytes_per_sec for link in problem.links])
    return latency_secs + groups.edge_bytes * secs_per_byte
