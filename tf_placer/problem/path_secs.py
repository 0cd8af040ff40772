"""How long the longest chains of operations are that wait for each other."""

from __future__ import annotations

import numpy as np

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
    return _longest(problem, problem.edges, problem.order, secs)


def longest_after(problem: PlacementProblem, secs: np.ndarray) -> np.ndarray:
    """Adds up the longest chain of operations that have to wait for each operation.

    Args:
        problem: has the operations.
        secs: float64 [num_operations], what they take.

    Returns:
        float64 [num_operations], seconds, without the operation itself.
    """
    return _longest(problem, problem.edges[:, ::-1], problem.order[::-1], secs)


def _longest(
    problem: PlacementProblem, edges: np.ndarray, order: np.ndarray, secs: np.ndarray
) -> np.ndarray:
    """Adds up the longest chains before operations, in the direction of the edges."""
    position = np.empty(problem.num_operations, np.int64)
    position[order] = np.arange(problem.num_operations)
    # The edges into an operation come before those out of it.
    edges = edges[np.argsort(position[edges[:, 0]], kind="stable")]
    before, own = [0.0] * problem.num_operations, secs.tolist()
    for source, target in edges.tolist():
        length = before[source] + own[source]
        if length > before[target]:
            before[target] = length
    return np.array(before)
