"""Operations whose device is not ours to choose."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph

__all__ = ["find_feeds", "left_alone"]

_FEEDS = frozenset(["Placeholder", "PlaceholderV2", "PlaceholderWithDefault"])
# Operations that only exist on the CPU of the process that owns their state.
_TYPES = frozenset(
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
# Families of operations, known by a part of their type's name.
_FAMILIES = (
    *("Summary", "Queue", "Reader", "Dataset", "Iterator", "Collective", "Nccl"),
    *("HashTable", "LookupTable", "InitializeTable", "Barrier", "TPU"),
)
_XLA_ATTRIBUTES = ("_XlaCompile", "_XlaMustCompile", "_xla_compile_id", "_XlaClusterId")


def left_alone(graph: OpGraph) -> np.ndarray:
    """Finds the operations that keep the device they came with, even if that is none.

    These are operations that the user put on a device, everything that reads or writes strings
    (save and restore, summaries, file names), assertions and prints, Python functions, queues,
    readers, tables, data sets and iterators, collectives, the internals of a partitioned graph,
    what is marked for XLA, and what calls functions with any such types in them.

    Args:
        graph: the graph.

    Returns:
        bool [num_operations].
    """
    alone = graph.has_type(name for name in graph.type_names if _is_bound(name))
    is_string = graph.tensor_dtypes == types_pb2.DT_STRING
    alone[graph.tensor_producer[is_string]] = True
    alone[graph.edge_consumer[is_string[graph.edge_tensor]]] = True
    functions = FunctionLibrary(graph.graph_def)
    holds_bound: dict[str, bool] = {}
    for i, node in enumerate(graph.graph_def.node):
        attr = node.attr
        if node.device or any(_is_set(attr[name]) for name in _XLA_ATTRIBUTES if name in attr):
            alone[i] = True
        for name in functions.run_by(node):
            if name not in holds_bound:
                holds_bound[name] = any(_is_bound(inner.op) for inner in functions.body(name))
            alone[i] |= holds_bound[name]
    return alone


def find_feeds(graph: OpGraph) -> np.ndarray:
    """Finds the operations whose values a step is given.

    There is nothing to gain from a device for them, but where other operations must share one with
    them (the switch of a v1 conditional, say, with what it switches), they go along.

    Args:
        graph: the graph.

    Returns:
        bool [num_operations].
    """
    feeds = graph.has_type(_FEEDS)
    feeds[graph.tensor_producer[graph.fed]] = True
    return feeds


def _is_bound(op_type: str) -> bool:
    return op_type in _TYPES or any(family in op_type for family in _FAMILIES)


def _is_set(value: tf.compat.v1.AttrValue) -> bool:
    return value.b if value.HasField("b") else True
