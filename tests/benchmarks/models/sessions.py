"""Sessions that run a graph as it is."""

from __future__ import annotations

import tensorflow as tf

tf1 = tf.compat.v1

__all__ = ["plain_session"]


def plain_session(graph: tf.Graph) -> tf.compat.v1.Session:
    """A session that does not rewrite the graph first, which takes longer than a few steps of it.

    What a model computes is the same without; rewriting is TensorFlow's, not the models'.
    """
    config = tf1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return tf1.Session(graph=graph, config=config)
