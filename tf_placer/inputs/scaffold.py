"""Reads the initial state of a training from its `tf.compat.v1.train.Scaffold`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from graph_passes.errors import GraphError
from tf_placer.inputs.graph_collections import Collections
from tf_placer.inputs.restored_values import read_session_values
from tf_placer.inputs.session_arguments import flatten_feeds, list_names

__all__ = ["run_init_fn", "scaffold_feeds", "scaffold_initializers"]


def scaffold_initializers(
    scaffold: tf.compat.v1.train.Scaffold, collections: Collections
) -> list[str] | None:
    """Lists the operations that a scaffold runs before the first step.

    Args:
        scaffold: the scaffold, finalized or not.
        collections: the collections of its graph, for the operations that it does not set.

    Returns:
        Names of operations; None if the scaffold sets none of them.
    """
    if scaffold.init_op is None and scaffold.local_init_op is None:
        return None
    first, then = list(collections.initializers), list(collections.local_initializers)
    if scaffold.init_op is not None:
        first = list_names(scaffold.init_op)
    if scaffold.local_init_op is not None:
        then = list_names(scaffold.local_init_op)
    return first + then


def scaffold_feeds(scaffold: tf.compat.v1.train.Scaffold) -> dict[str, Any]:
    """Returns the feeds of a scaffold's initializers, by tensor name."""
    # Older versions of TensorFlow have no `local_init_feed_dict`.
    both = (scaffold.init_feed_dict, getattr(scaffold, "local_init_feed_dict", None))
    return {name: value for feeds in both for name, value in flatten_feeds(feeds).items()}


def run_init_fn(
    scaffold: tf.compat.v1.train.Scaffold,
    graph: tf.Graph | None,
    initializers: Sequence[str],
    feeds: Mapping[str, np.ndarray],
    variables: Sequence[str],
) -> dict[str, np.ndarray]:
    """Runs a scaffold's `init_fn` in this process, on the CPU, and reads the variables.

    Args:
        scaffold: a scaffold with an `init_fn`.
        graph: its tf.Graph, or None.
        initializers: names of the operations that run before the `init_fn`.
        feeds: the feeds of the initializers.
        variables: names of the variables' operations.

    Returns:
        The values of the variables, by name.

    Raises:
        GraphError: the `init_fn` fails, or the graph is not given as a tf.Graph.
    """
    if graph is None:
        raise GraphError("the Scaffold has an init_fn, which needs the graph as a tf.Graph")
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, device_count={"GPU": 0})
    with tf.compat.v1.Session(graph=graph, config=config) as session:
        try:
            session.run(list(initializers), dict(feeds))
            scaffold.init_fn(session)
        except Exception as error:
            reason = " ".join((getattr(error, "message", None) or str(error)).split())
            raise GraphError(
                f"the init_fn of the Scaffold fails: {type(error).__name__}: {reason}"
            ) from error
        return read_session_values(session, variables)
