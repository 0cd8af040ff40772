"""The one interface of what rewrites graphs."""

from __future__ import annotations

import abc

import tensorflow as tf

__all__ = ["GraphPass"]


class GraphPass(abc.ABC):
    """A step from one graph to the next; it never changes the one that it was given.

    What finds something out about a graph is no pass but a function, such as
    `find_colocation_groups` and `group_operations`.
    """

    @abc.abstractmethod
    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Rewrites a graph.

        Args:
            graph_def: the graph; not changed.

        Returns:
            The new graph, or the very one that was given if nothing in it is to change.

        Raises:
            GraphError: the graph cannot be worked on.
        """
