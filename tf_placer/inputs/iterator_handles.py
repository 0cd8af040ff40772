"""Iterator handles that are fed as strings, which are valid in one session only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow.core.framework import resource_handle_pb2

__all__ = ["find_fed_iterators"]

_ITERATORS = frozenset({"Iterator", "IteratorV2", "OneShotIterator"})
_TYPE = "IteratorResource"


def find_fed_iterators(
    graph_def: tf.compat.v1.GraphDef, feeds: Mapping[str, np.ndarray]
) -> dict[str, str]:
    """Finds the iterators whose string handles are fed, for `Iterator.from_string_handle`.

    Args:
        graph_def: the graph.
        feeds: values by tensor name.

    Returns:
        The name of the iterator's operation, by name of the fed tensor.
    """
    names = {}
    for name, value in feeds.items():
        candidates = _read_names(value)
        if candidates:
            names[name] = candidates
    if not names:
        return {}
    operations = {
        _read_shared_name(node) or node.name: node.name
        for node in graph_def.node
        if node.op in _ITERATORS
    }
    return {
        name: operations[each]
        for name, candidates in names.items()
        for each in candidates
        if each in operations
    }


def _read_shared_name(node: Any) -> str:
    return node.attr["shared_name"].s.decode() if "shared_name" in node.attr else ""


def _read_names(value: np.ndarray) -> list[str]:
    """Reads the possible names of an iterator from its handle; none from other values."""
    content = value.item() if value.dtype == np.object_ and value.shape == () else None
    if not isinstance(content, bytes) or _TYPE.encode() not in content:
        return []
    try:
        name = resource_handle_pb2.ResourceHandleProto.FromString(content).name
    except message.DecodeError:
        return []
    # Sessions put a number before the name of a resource that is not shared.
    return [name, re.sub(r"^_\d+_", "", name)]
