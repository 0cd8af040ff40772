"""A check that two problems are of one graph, or of versions of it."""

from __future__ import annotations

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["describe_difference"]

# Problems with a smaller share of operations in common are of different models.
_LEAST_COMMON_SHARE = 0.5


def describe_difference(a: PlacementProblem, b: PlacementProblem) -> str | None:
    """Says, as a clause, how few operations the graphs of two problems have in common.

    Returns:
        None if they have at least half of the smaller graph in common.
    """
    names = [set(problem.operation_names) for problem in (a, b)]
    fewest, common = min(map(len, names)), len(set.intersection(*names))
    if common >= _LEAST_COMMON_SHARE * fewest:
        return None
    return f"of {fewest:,} operations they have {common:,} in common"
