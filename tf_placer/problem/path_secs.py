"""How long the longest chains of operations are that wait for each other."""

from __future__ import annotations

import numpy as np

from graph_passes.util import topological_order
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["least_secs", "longest_after", "longest_before"]


def least_secs(problem: PlacementProblem) -> np.ndarray:
    """Finds what each operation takes at least where its whole group may go.

    Returns:
        float64 [num_operations], seconds.
    """
    legal = legal_devices(problem)
    least: np.ndarray = np.where(legal[problem.groups], problem.compute_secs, np.inf).min(axis=1)
    return least


def longest_before(problem: PlacementProblem, secs: np.ndarray) -> np.ndarray:
    """Adds up the longest chain of operations that each operation has to wait for.

    Args:
        problem: has the operations.
        secs: float64 [num_operations], what they take.

    Returns:
        float64 [num_operations], seconds, without the operation itself.
    """
    return topological_order.longest_before(problem.order, problem.edges, secs)


def longest_after(problem: PlacementProblem, secs: np.ndarray) -> np.ndarray:
    """Adds up the longest chain of operations that have to wait for each operation.

    Args:
        problem: has the operations.
        secs: float64 [num_operations], what they take.

    Returns:
        float64 [num_operations], seconds, without the operation itself.
    """
    return topological_order.longest_before(problem.order[::-1], problem.edges[:, ::-1], secs)
