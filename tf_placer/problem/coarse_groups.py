"""A placement problem with fewer things to decide: coarse groups in place of groups."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["clusters_of", "coarse_assignment", "coarse_problem"]


def coarse_problem(problem: PlacementProblem) -> tuple[PlacementProblem, np.ndarray]:
    """Makes the problem of placing coarse groups.

    Args:
        problem: what is placed.

    Returns:
        The same problem with its coarse groups as groups, itself if it has none; and int32
        [num_groups], the coarse group of each group: a placement `coarse` is `coarse[clusters]` of
        the groups.
    """
    if problem.coarse_groups is None:
        return problem, np.arange(problem.num_groups, dtype=np.int32)
    coarse = dataclasses.replace(problem, groups=problem.coarse_groups, coarse_groups=None)
    return coarse, clusters_of(problem.groups, problem.coarse_groups)


def coarse_assignment(
    assignment: np.ndarray, clusters: np.ndarray, num_clusters: int, num_devices: int
) -> np.ndarray:
    """Finds the device that most groups of each coarse group are on, the first of equals.

    Args:
        assignment: int [num_groups], the device of each group.
        clusters: int [num_groups], the coarse group of each group.
        num_clusters: how many coarse groups there are.
        num_devices: how many devices there are.

    Returns:
        int32 [num_clusters].
    """
    counts = np.zeros([num_clusters, num_devices], np.int64)
    np.add.at(counts, (clusters, assignment), 1)
    return np.asarray(counts.argmax(axis=1), np.int32)


def clusters_of(groups: np.ndarray, coarse_groups: np.ndarray) -> np.ndarray:
    """Finds the coarse group that each group is in.

    Args:
        groups: int [num_operations], the group of every operation.
        coarse_groups: int [num_operations], its coarse group, the same for all of a group.

    Returns:
        int32 [num_groups]. A group without operations goes with others: it is in the coarse group
        of the first operation.
    """
    clusters = np.full(int(groups.max(initial=-1)) + 1, coarse_groups[:1], np.int32)
    clusters[groups] = coarse_groups
    return clusters
