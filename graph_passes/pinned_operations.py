"""Pinned operations, whose device is never changed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph

__all__ = ["find_feeds", "find_pinned"]

_FEEDS = frozenset(["Placeholder", "PlaceholderV2", "PlaceholderWithDefault"])
# Types that only run on the CPU of the process that owns their state.
_PINNED_TYPES = frozenset(
    [
        *("Assert", "Print", "PrintV2", "PyFunc", "PyFuncStateless", "EagerPyFunc"),
        *("Save", "SaveSlices", "SaveV2", "Restore", "RestoreSlice", "RestoreV2"),
        *("MergeV2Checkpoints", "ShardedFilename"),
        *("_Send", "_Recv", "_HostSend", "_HostRecv", "Send", "Recv"),
        *("_Arg", "_Retval", "_DeviceArg", "_DeviceRetval"),
        *("XlaLaunch", "XlaSend", "XlaRecv"),
        *("Stage", "Unstage", "MapStage", "MapUnstage", "OrderedMapStage", "OrderedMapUnstage"),
    ]
)
# Families of types that share a part of their name.
_PINNED_FAMILIES = (
    *("Summary", "Queue", "Reader", "Dataset", "Iterator", "Collective", "Nccl"),
    *("HashTable", "LookupTable", "InitializeTable", "Barrier", "TPU"),
)
_XLA_ATTRIBUTES = ("_XlaCompile", "_XlaMustCompile", "_xla_compile_id", "_XlaClusterId")


def find_pinned(graph: OpGraph) -> np.ndarray:
    """Finds the operations that keep their original device field, even if it is empty.

    These are operations that the user put on a device, readers and writers of strings (save and
    restore, summaries, file names), assertions and prints, Python functions, queues, readers,
    tables, data sets and iterators, collectives, the internals of a partitioned graph, operations
    marked for XLA, and calls of functions that contain any of these types.

    Args:
        graph: the graph.

    Returns:
        bool [num_operations].
    """
    pinned = graph.has_type(name for name in graph.type_names if _is_pinned_type(name))
    is_string = graph.tensor_dtypes == types_pb2.DT_STRING
    pinned[graph.tensor_producer[is_string]] = True
    pinned[graph.edge_consumer[is_string[graph.edge_tensor]]] = True
    functions = FunctionLibrary(graph.graph_def)
    calls_pinned: dict[str, bool] = {}
    for i, node in enumerate(graph.graph_def.node):
        attr = node.attr
        if node.device or any(_is_set(attr[name]) for name in _XLA_ATTRIBUTES if name in attr):
            pinned[i] = True
        for name in functions.find_all_callees(node):
            if name not in calls_pinned:
                calls_pinned[name] = any(
                    _is_pinned_type(inner.op) for inner in functions.body(name)
                )
            pinned[i] |= calls_pinned[name]
    return pinned


def find_feeds(graph: OpGraph) -> np.ndarray:
    """Finds the operations whose outputs are fed.

    They gain nothing from a device, but follow operations that must share a device with them (for
    example, the switch of a v1 conditional, which shares a device with its input).

    Args:
        graph: the graph.

    Returns:
        bool [num_operations].
    """
    feeds = graph.has_type(_FEEDS)
    feeds[graph.tensor_producer[graph.fed]] = True
    return feeds


def _is_pinned_type(op_type: str) -> bool:
    return op_type in _PINNED_TYPES or any(family in op_type for family in _PINNED_FAMILIES)


def _is_set(value: tf.compat.v1.AttrValue) -> bool:
    return value.b if value.HasField("b") else True
