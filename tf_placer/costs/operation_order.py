"""The order of a graph's operations on GPUs, as control edges."""

from __future__ import annotations

import numpy as np

from graph_passes.op_graph import OpGraph
from graph_passes.operation_order import find_orderable
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.operation_order import OperationOrder, find_order

__all__ = ["find_control_edges"]


def find_control_edges(
    graph: OpGraph, problem: PlacementProblem, placement: np.ndarray, *, max_secs: float, seed: int
) -> tuple[OperationOrder, list[tuple[str, str]]]:
    """Searches the order that makes the step of a placed graph short.

    Args:
        graph: the graph, with the operations of the step marked as needed.
        problem: the placement problem of the graph.
        placement: int32 [num_groups], a legal placement.
        max_secs: the time to search, in seconds.
        seed: seeds the search.

    Returns:
        The order, and the control edges that set it: the name of an operation, and that of a later
        one which does not read it.

    Raises:
        GraphError: see `find_orderable`.
    """
    names = problem.operation_names
    operations = np.array([graph.index[name] for name in names])
    may_wait = find_orderable(graph)[operations]
    found = find_order(problem, placement, may_wait, max_secs=max_secs, seed=seed)
    edges = [
        (names[before], names[after])
        for before, after in found.edges.tolist()
        if operations[before] not in graph.producers[operations[after]]
    ]
    return found, edges
