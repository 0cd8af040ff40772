"""The interface of passes that rewrite graphs."""

from __future__ import annotations

import abc

import tensorflow as tf

__all__ = ["GraphPass"]


class GraphPass(abc.ABC):
    """A rewrite of a graph that never changes its input.

    Analyses, such as `find_colocation_groups` and `group_operations`, are functions, not passes.
    """

    @abc.abstractmethod
    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Rewrites a graph.

        Args:
            graph_def: the graph; not changed.

        Returns:
            The new graph, or the same object if nothing changes.

        Raises:
            GraphError: the graph cannot be processed.
        """
