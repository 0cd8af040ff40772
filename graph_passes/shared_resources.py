"""Operations that share a resource by its container and name."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["Resource", "find_resources", "find_variables"]

_CONTAINER, _SHARED_NAME = "container", "shared_name"
_DEFAULT_CONTAINER = b"localhost"
# TensorFlow makes a new resource for each operation with this name
# (`ResourceHandle::ANONYMOUS_NAME`).
_ANONYMOUS = b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"
# Parts of operation types. TensorFlow keeps resources of different kinds separate even if their
# names are equal.
_KINDS = ("VarHandleOp", "Variable", "HashTable", "Iterator", "Queue", "Reader", "Accumulator")
# Kernels of types with this suffix (`ResourceHandleOp`) use an empty name; other kernels replace it
# by the name of the operation.
_TAKES_EMPTY_NAME = "HandleOp"


class Resource(NamedTuple):
    """The key of a resource on a device.

    Attributes:
        container: the container of the resource.
        name: the name in the container.
        kind: the kind of the resource, as far as the type of the operation tells: resources of
            different kinds are never shared.
    """

    container: bytes
    name: bytes
    kind: str


def find_resources(graph: OpGraph) -> dict[Resource, list[int]]:
    """Finds the operations that look up a resource by its container and name.

    All operations on one device get the same resource, and operations on different devices get
    different ones. Operations that run functions look up the resources of these functions.

    Args:
        graph: the graph.

    Returns:
        The operations of each resource, in the order of the graph.
    """
    functions = FunctionLibrary(graph.graph_def)
    found: dict[Resource, list[int]] = {}
    in_function: dict[str, frozenset[Resource]] = {}
    for i, node in enumerate(graph.graph_def.node):
        resources = set(_list_resources((node,)))
        for name in functions.find_all_callees(node):
            if name not in in_function:
                in_function[name] = frozenset(_list_resources(functions.body(name)))
            resources |= in_function[name]
        for resource in resources:
            found.setdefault(resource, []).append(i)
    return found


def find_variables(graph: OpGraph) -> list[tuple[int, ...]]:
    """Lists the operations that hold each variable, in the order of the first of them."""
    is_variable = graph.has_type(VARIABLES)
    found = [[i for i in each if is_variable[i]] for each in find_resources(graph).values()]
    named = {i for handles in found for i in handles}
    anonymous = [[i] for i in np.flatnonzero(is_variable).tolist() if i not in named]
    return sorted(tuple(handles) for handles in (*found, *anonymous) if handles)


def _list_resources(nodes: Iterable[tf.compat.v1.NodeDef]) -> Iterator[Resource]:
    """Yields the resources that operations look up by name."""
    for node in nodes:
        if not _looks_up(node.op):
            continue
        attr = node.attr
        shared = attr[_SHARED_NAME].s if _SHARED_NAME in attr else b""
        if shared == _ANONYMOUS:
            continue
        container = attr[_CONTAINER].s if _CONTAINER in attr else b""
        name = shared if shared or node.op.endswith(_TAKES_EMPTY_NAME) else node.name.encode()
        kind = next((kind for kind in _KINDS if kind in node.op), "")
        yield Resource(container or _DEFAULT_CONTAINER, name, kind)


@functools.cache
def _looks_up(op_type: str) -> bool:
    """Returns whether operations of a type look up a resource by container and name.

    NCCL's operations, which have no container, use the shared name for a collective operation.
    """
    op_def = op_def_registry.get(op_type)
    attributes = {attr.name for attr in op_def.attr} if op_def is not None else set()
    return {_CONTAINER, _SHARED_NAME} <= attributes
