"""Durations of the longest chains of dependent operations."""

from __future__ import annotations

import numpy as np

from graph_passes.util import topological_order
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["least_secs", "longest_after", "longest_before"]


def least_secs(problem: PlacementProblem) -> np.ndarray:
    """Finds the compute time of each operation on the fastest device that its group may go to.

    Returns:
        float64 [num_operations], seconds.
    """
    legal = legal_devices(problem)
    least: np.ndarray = np.where(legal[problem.groups], problem.compute_secs, np.inf).min(axis=1)
    return least


def longest_before(problem: PlacementProblem, secs: np.ndarray) -> np.ndarray:
    """Adds up the longest chain of operations before each operation.

    Args:
        problem: the problem, which has the operations.
        secs: float64 [num_operations], the durations of the operations.

    Returns:
        float64 [num_operations], seconds, without the operation itself.
    """
    return topological_order.compute_longest_paths(problem.order, problem.edges, secs)


def longest_after(problem: PlacementProblem, secs: np.ndarray) -> np.ndarray:
    """Adds up the longest chain of operations after each operation.

    Args:
        problem: the problem, which has the operations.
        secs: float64 [num_operations], the durations of the operations.

    Returns:
        float64 [num_operations], seconds, without the operation itself.
    """
    return topological_order.compute_longest_paths(
        problem.order[::-1], problem.edges[:, ::-1], secs
    )
