"""Graphs that are placed by the names of their forward operations.

TensorFlow names the gradient operations of X "gradients/X_grad/...", so that they can be put where
X is. The sums of gradients of a tensor that several operations read are named "gradients/AddN_7"
and belong nowhere by name: without a device, TensorFlow puts them on the first GPU.
"""

from __future__ import annotations

import re

import tensorflow as tf

__all__ = ["colocate_by_name", "is_gradient_sum"]

_SCOPE = "gradients/"
_SUM = re.compile(r"gradients/AddN(_\d+)?")
_GRADIENT = re.compile(r"_grad(_\d+)?$")
_CLASS = "_class"


def is_gradient_sum(name: str) -> bool:
    """Tells whether an operation is a sum of gradients, by its name."""
    return _SUM.fullmatch(name) is not None


def colocate_by_name(graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Colocates gradients with their forward operations, and sums of gradients with nothing.

    Args:
        graph_def: a training graph; unchanged.

    Returns:
        A copy with other `loc:@` attributes.
    """
    placed = tf.compat.v1.GraphDef()
    placed.CopyFrom(graph_def)
    names = {node.name for node in placed.node}
    for node in placed.node:
        if is_gradient_sum(node.name):
            node.attr.pop(_CLASS, None)
        elif (forward := _find_forward(node.name, names)) is not None:
            node.attr[_CLASS].list.s.append(f"loc:@{forward}".encode())
    return placed


def _find_forward(name: str, names: set[str]) -> str | None:
    """Finds the forward operation of a gradient operation; None for other operations."""
    if not name.startswith(_SCOPE):
        return None
    parts = name.removeprefix(_SCOPE).split("/")
    for end in range(len(parts), 0, -1):
        scope = "/".join(parts[:end])
        forward = _GRADIENT.sub("", scope)
        if forward != scope and forward in names:
            return forward
    return None
