"""The pass that sets the order in which devices are handed their operations."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass
from graph_passes.op_graph import OpGraph
from graph_passes.unconditional import find_ancestors, find_unconditional
from graph_passes.util.messages import quote

__all__ = ["OrderOperations", "find_orderable"]

# Parts of the types of operations that may wait for other steps.
_WAITS_FOR_OTHERS = ("Queue", "Barrier", "Stage", "Collective", "Nccl", "Send", "Recv")

# The scope of `tf.gradients`, which leaves operations behind that no step uses.
_GRADIENT_SCOPE = re.compile(r"(^|/)gradients(_\d+)?/")


def find_orderable(graph: OpGraph) -> np.ndarray:
    """Finds the operations that control edges may connect without changing what any step computes.

    These are operations of the step that always run, and that nothing outside of the step depends
    on, but for what `tf.gradients` has left behind: initializers, savers and summaries then run
    what they ran before. Every order of a step that control edges between them leave is one that it
    could have had without.

    Args:
        graph: the graph, with the operations of the step marked as needed.

    Returns:
        bool [num_operations].

    Raises:
        GraphError: the step has operations that wait for other steps, such as queues.
    """
    for i in np.flatnonzero(graph.needed).tolist():
        if any(part in graph.type_names[graph.types[i]] for part in _WAITS_FOR_OTHERS):
            raise GraphError(
                f"the step waits for others in {quote(graph.names[i])}, a "
                f"{graph.type_names[graph.types[i]]}: with an order of its own it might wait for "
                "ever. Feed the step instead"
            )
    has_inputs = np.zeros(graph.num_operations, np.bool_)
    has_inputs[graph.edge_consumer] = True
    is_leftover = np.array([_GRADIENT_SCOPE.search(name) is not None for name in graph.names])
    inside = graph.needed & ~find_ancestors(graph, ~graph.needed & ~is_leftover)
    orderable: np.ndarray = inside & find_unconditional(graph) & has_inputs
    return orderable


class OrderOperations(GraphPass):
    """A pass that adds control edges; values stay the same, because nothing else changes."""

    def __init__(self, edges: Sequence[tuple[str, str]]) -> None:
        """Stores the edges, each from the name of an operation to that of a later one."""
        self._edges = tuple(edges)

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Adds the edges; see `GraphPass.run`.

        Raises:
            GraphError: an operation is missing, or would wait for itself.
        """
        if not self._edges:
            return graph_def
        ordered = tf.compat.v1.GraphDef()
        ordered.CopyFrom(graph_def)
        nodes = {node.name: node for node in ordered.node}
        for before, after in self._edges:
            for name in (before, after):
                if name not in nodes:
                    raise GraphError(f"the graph has no operation {quote(name)} to order")
            nodes[after].input.append(f"^{before}")
        # Check for cycles.
        OpGraph.from_graph_def(ordered)
        return ordered
