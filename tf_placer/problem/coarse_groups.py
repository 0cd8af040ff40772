"""Conversion between a placement problem and its smaller form, which places coarse groups."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["coarse_assignment", "coarse_problem", "find_clusters"]


def coarse_problem(problem: PlacementProblem) -> tuple[PlacementProblem, np.ndarray]:
    """Makes the problem of placing coarse groups.

    Args:
        problem: the problem of placing groups.

    Returns:
        The same problem with its coarse groups as groups, or `problem` itself if it has none; and
        `clusters`, int32 [num_groups], the coarse group of each group. A placement `coarse` of the
        smaller problem becomes `coarse[clusters]`, a placement of the groups.
    """
    if problem.coarse_groups is None:
        return problem, np.arange(problem.num_groups, dtype=np.int32)
    coarse = dataclasses.replace(problem, groups=problem.coarse_groups, coarse_groups=None)
    return coarse, find_clusters(problem.groups, problem.coarse_groups)


def coarse_assignment(
    assignment: np.ndarray, clusters: np.ndarray, num_clusters: int, num_devices: int
) -> np.ndarray:
    """Finds the device with most groups of each coarse group; ties go to the lowest index.

    Args:
        assignment: int [num_groups], the device of each group.
        clusters: int [num_groups], the coarse group of each group.
        num_clusters: the number of coarse groups.
        num_devices: the number of devices.

    Returns:
        int32 [num_clusters].
    """
    counts = np.zeros([num_clusters, num_devices], np.int64)
    np.add.at(counts, (clusters, assignment), 1)
    return np.asarray(counts.argmax(axis=1), np.int32)


def find_clusters(groups: np.ndarray, coarse_groups: np.ndarray) -> np.ndarray:
    """Finds the coarse group of each group.

    Args:
        groups: int [num_operations], the group of every operation.
        coarse_groups: int [num_operations], the coarse group of every operation, the same within a
            group.

    Returns:
        int32 [num_groups]. A group without operations gets the coarse group of operation 0.
    """
    clusters = np.full(int(groups.max(initial=-1)) + 1, coarse_groups[:1], np.int32)
    clusters[groups] = coarse_groups
    return clusters
