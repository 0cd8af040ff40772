"""The operations that run whenever the step runs."""

from __future__ import annotations

import numpy as np

from graph_passes.op_graph import OpGraph

__all__ = ["find_ancestors", "find_unconditional"]

_CONTROL_FLOW = frozenset(
    [
        *("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond", "ControlTrigger"),
        *("RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration"),
    ]
)


def find_unconditional(graph: OpGraph) -> np.ndarray:
    """Finds the operations that are in no conditional or loop of TensorFlow 1 and follow none.

    The others may not run, and what waits for an operation that does not run does not run either.

    Returns:
        bool [num_operations].
    """
    return ~_reach(graph, graph.has_type(_CONTROL_FLOW), forward=True)


def find_ancestors(graph: OpGraph, operations: np.ndarray) -> np.ndarray:
    """Finds what operations depend on, by data or control, and the operations themselves.

    Args:
        graph: the graph.
        operations: bool [num_operations].

    Returns:
        bool [num_operations].
    """
    return _reach(graph, operations, forward=False)


def _reach(graph: OpGraph, operations: np.ndarray, *, forward: bool) -> np.ndarray:
    """Finds what is reached from operations along edges or against them."""
    ends = (
        np.concatenate([graph.edge_producer, graph.control_edges[:, 0]]),
        np.concatenate([graph.edge_consumer, graph.control_edges[:, 1]]),
    )
    begin, end = ends if forward else ends[::-1]
    by_begin = np.argsort(begin, kind="stable")
    neighbors = end[by_begin]
    start = np.searchsorted(begin[by_begin], np.arange(graph.num_operations + 1))
    reached = operations.copy()
    stack = np.flatnonzero(reached).tolist()
    while stack:
        i = stack.pop()
        for neighbor in neighbors[start[i] : start[i + 1]].tolist():
            if not reached[neighbor]:
                reached[neighbor] = True
                stack.append(neighbor)
    return reached
