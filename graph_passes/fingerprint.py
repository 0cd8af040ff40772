"""A name for a graph that does not depend on where it runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Protocol

import tensorflow as tf

__all__ = ["graph_fingerprint"]

# Written down for readers; a graph that is built anew may lack them.
_NOTES = ("_output_shapes",)


class _Message(Protocol):
    def SerializeToString(self, *, deterministic: bool) -> bytes: ...


def graph_fingerprint(graph_def: tf.compat.v1.GraphDef) -> str:
    """Computes a hash that two equal graphs share.

    Operations, their inputs and attributes, and the function library count; devices, the order of
    operations, and shapes written down for readers do not.

    Args:
        graph_def: the graph.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    plain = tf.compat.v1.NodeDef()
    for node in sorted(graph_def.node, key=lambda node: node.name):
        plain.CopyFrom(node)
        _strip([plain])
        _add(digest, plain)
    # So that an operation never looks like a function.
    _add(digest, tf.compat.v1.NodeDef())
    library = graph_def.library
    for function in sorted(library.function, key=lambda function: function.signature.name):
        plain_function = type(function)()
        plain_function.CopyFrom(function)
        _strip(plain_function.node_def)
        _add(digest, plain_function)
    _add(digest, tf.compat.v1.NodeDef())
    for gradient in sorted(library.gradient, key=lambda gradient: gradient.function_name):
        _add(digest, gradient)
    return digest.hexdigest()


def _strip(nodes: Iterable[tf.compat.v1.NodeDef]) -> None:
    """Removes what does not count."""
    for node in nodes:
        node.ClearField("device")
        node.ClearField("experimental_debug_info")
        for name in _NOTES:
            # Deleting an attribute that is not there is an error.
            if name in node.attr:
                del node.attr[name]


def _add(digest: hashlib._Hash, message: _Message) -> None:
    # With its length, so that no two sequences of records look the same.
    data = message.SerializeToString(deterministic=True)
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)
