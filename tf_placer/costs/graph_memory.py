"""The memory that the tensors of a graph take, each byte counted once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES
from graph_passes.shared_resources import find_variables

__all__ = ["MEMORY_SHARERS", "GraphMemory", "compute_graph_memory", "compute_variables_bytes"]

# Operations whose outputs share the memory of their first input. Operations that pass a reference
# to a variable through are added by `_returns_references`.
_ALIASES = frozenset(
    [
        *("Identity", "ReadVariableOp", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
        *("PreventGradient", "Snapshot", "CheckNumerics", "Switch", "Enter", "Exit"),
    ]
)
# Operations that write their output into the memory of an input of the same size that no other
# operation reads.
_IN_PLACE = frozenset(
    [
        *("Abs", "AccumulateNV2", "Add", "AddN", "AddV2", "BiasAdd", "Ceil", "Cos", "Div"),
        *("DivNoNan", "Elu", "EluGrad", "Erf", "Exp", "Expm1", "Floor", "FloorDiv", "FloorMod"),
        *("Inv", "InvGrad", "LeakyRelu", "LeakyReluGrad", "Log", "Log1p", "LogSoftmax", "Maximum"),
        *("Minimum", "Mul", "MulNoNan", "Neg", "Pow", "RealDiv", "Reciprocal", "ReciprocalGrad"),
        *("Relu", "Relu6", "Relu6Grad", "ReluGrad", "Round", "Rsqrt", "RsqrtGrad", "Selu"),
        *("SeluGrad", "Sigmoid", "SigmoidGrad", "Sign", "Sin", "Softmax", "Softplus"),
        *("SoftplusGrad", "Softsign", "SoftsignGrad", "Sqrt", "SqrtGrad", "Square"),
        *("SquaredDifference", "Sub", "Tanh", "TanhGrad", "Xdivy", "Xlogy"),
    ]
)
#: Operations whose outputs may share the memory of an input.
MEMORY_SHARERS = _ALIASES | _IN_PLACE
# In-place operations never overwrite the outputs of these: the caller still owns a fed tensor.
_NEVER_OVERWRITTEN = VARIABLES | frozenset(["Const", "Placeholder", "PlaceholderWithDefault"])


@dataclasses.dataclass(frozen=True, eq=False)
class GraphMemory:
    """Memory of a graph.

    Attributes:
        resident_bytes: int64 [num_operations], memory that an operation holds for the whole step.
        local_bytes: int64 [num_tensors], memory that a tensor holds on the device of its producer.
        readers: by tensor, the indices of the operations that must run before it is freed.
    """

    resident_bytes: np.ndarray
    local_bytes: np.ndarray
    readers: Mapping[int, Sequence[int]]


def compute_graph_memory(
    graph: OpGraph,
    groups: np.ndarray,
    number: np.ndarray,
    readers: Mapping[int, Sequence[int]],
    tensor_bytes: np.ndarray,
) -> GraphMemory:
    """Computes the memory of a graph, and counts no byte twice where operations share a buffer.

    Variables and constants are resident, and tensors read from them take no further memory on
    the device of their producer. Reshaping a tensor gives an alias in the same memory, if both are
    in one group. If no other group reads the alias, its readers keep the original tensor alive. If
    another group reads it, the alias holds the memory until that group is done, and the original
    tensor holds none.

    A buffer counts twice if other groups read it under two names, or if its own group reads it
    under one name and other groups under another. State behind resource handles counts only for
    variables.

    Args:
        graph: the graph.
        groups: int32 [num_operations], the group of each operation that the step needs.
        number: int32 [num_operations], the index of each operation in the problem, -1 for none.
        readers: by tensor, the indices of the operations that read it.
        tensor_bytes: int64 [num_tensors], the size of every tensor.

    Returns:
        The memory.
    """
    local = np.zeros(len(tensor_bytes), np.int64)
    resident = np.zeros(graph.num_operations, np.int64)
    held_by = {tensor: list(places) for tensor, places in readers.items()}
    variables, constants = graph.has_type(VARIABLES), graph.has_type(["Const"])
    at = np.flatnonzero(number >= 0)
    operation_at = at[np.argsort(number[at])]

    def stays(tensor: int) -> bool:
        group = groups[graph.tensor_producer[tensor]]
        return all(groups[operation_at[place]] == group for place in readers.get(tensor, ()))

    for root, tensors in _find_buffers(
        graph, groups, number, operation_at, readers, tensor_bytes
    ).items():
        maker = int(graph.tensor_producer[root])
        buffer_bytes = max(0, int(tensor_bytes[tensors].max()))
        if variables[maker]:
            resident[maker] = max(_compute_variable_bytes(graph, maker), buffer_bytes)
            continue
        if constants[maker]:
            resident[maker] = buffer_bytes
            continue
        leaving = [tensor for tensor in tensors if not stays(tensor)]
        users = {p for tensor in tensors if stays(tensor) for p in readers.get(tensor, ())}
        local[leaving] = buffer_bytes
        if not leaving or leaving[0] == root:
            local[root] = buffer_bytes
            held_by.setdefault(root, []).extend(users)
        elif not users <= set(number[graph.tensor_producer[tensors]].tolist()):
            local[root] = buffer_bytes
    return GraphMemory(resident, local, held_by)


def compute_variables_bytes(graph: OpGraph) -> int:
    """Computes the total size of the variables that a step needs.

    Operations that hold the same variable count once, and unknown dimensions as 1.
    """
    needed = ([i for i in each if graph.needed[i]] for each in find_variables(graph))
    return sum(max((_compute_variable_bytes(graph, i) for i in each), default=0) for each in needed)


def _find_buffers(
    graph: OpGraph,
    groups: np.ndarray,
    number: np.ndarray,
    operation_at: np.ndarray,
    readers: Mapping[int, Sequence[int]],
    tensor_bytes: np.ndarray,
) -> dict[int, list[int]]:
    """Lists the tensors that share each buffer, in topological order, by the first of them.

    Tensors share memory only within a group: other groups may be on another device.
    """
    shares = graph.has_type(
        name
        for name in graph.type_names
        if name in _ALIASES or (_returns_references(name) and name not in VARIABLES)
    )
    in_place = graph.has_type(_IN_PLACE)
    never_overwritten = graph.has_type(_NEVER_OVERWRITTEN)
    root = np.arange(len(graph.tensor_dtypes))
    buffers: dict[int, list[int]] = {}
    # Buffers that another operation may still read, through an earlier tensor.
    shared: set[int] = set()

    def may_overwrite(i: int, tensor: int) -> bool:
        first = int(root[tensor])
        return (
            first not in shared
            and buffers[first][-1] == tensor
            and set(readers.get(tensor, ())) == {int(number[i])}
            and tensor_bytes[tensor] == tensor_bytes[graph.output_start[i]]
            and not never_overwritten[graph.tensor_producer[first]]
        )

    for i in operation_at.tolist():
        outputs = range(graph.output_start[i], graph.output_start[i + 1])
        inputs = [
            tensor
            for tensor in graph.input_tensors[i]
            if number[graph.tensor_producer[tensor]] >= 0
            and groups[graph.tensor_producer[tensor]] == groups[i]
            and not graph.fed[tensor]
        ]
        if in_place[i]:
            inputs = [tensor for tensor in inputs if may_overwrite(i, tensor)]
        elif not shares[i] or inputs[:1] != graph.input_tensors[i][:1]:
            inputs = []
        for tensor in outputs:
            if inputs:
                behind = inputs[0]
                first = root[tensor] = root[behind]
                if buffers[first][-1] != behind or len(set(readers.get(behind, ()))) > 1:
                    shared.add(int(first))
            buffers.setdefault(int(root[tensor]), []).append(tensor)
    return buffers


def _returns_references(op_type: str) -> bool:
    definition = op_def_registry.get(op_type)
    return definition is not None and any(output.is_ref for output in definition.output_arg)


def _compute_variable_bytes(graph: OpGraph, i: int) -> int:
    attr = graph.graph_def.node[i].attr
    dims = attr["shape"].shape.dim
    dtype = tf.dtypes.as_dtype(attr["dtype"].type).base_dtype
    if dtype in (tf.string, tf.resource, tf.variant):
        return 0
    return math.prod(max(dim.size, 1) for dim in dims) * dtype.size
