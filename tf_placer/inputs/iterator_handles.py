"""Handles of iterators that are fed as strings: they are of one session only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import resource_handle_pb2

__all__ = ["fed_iterators"]

_ITERATORS = frozenset({"Iterator", "IteratorV2", "OneShotIterator"})
_TYPE = "IteratorResource"


def fed_iterators(
    graph_def: tf.compat.v1.GraphDef, feeds: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Finds the iterators whose handles are fed, as `Iterator.from_string_handle` wants them.

    Args:
        graph_def: the graph.
        feeds: values by name of the tensor.

    Returns:
        By name of the fed tensor, the name of the iterator's operation.
    """
    names = {}
    for name, value in feeds.items():
        candidates = _names(value)
        if candidates:
            names[name] = candidates
    if not names:
        return {}
    operations = {
        _shared_name(node) or node.name: node.name
        for node in graph_def.node
        if node.op in _ITERATORS
    }
    return {
        name: operations[each]
        for name, candidates in names.items()
        for each in candidates
        if each in operations
    }


def _shared_name(node: Any) -> str:
    return node.attr["shared_name"].s.decode() if "shared_name" in node.attr else ""


def _names(value: np.ndarray) -> list[str]:
    """Reads what the iterator of a handle may be called; nothing of any other value."""
    content = value.item() if value.dtype == np.object_ and value.shape == () else None
    if not isinstance(content, bytes) or _TYPE.encode() not in content:
        return []
    try:
        name = resource_handle_pb2.ResourceHandleProto.FromString(content).name
    except message.DecodeError:
        return []
    # A session numbers what has no name that others share.
    return [name, re.sub(r"^_\d+_", "", name)]
