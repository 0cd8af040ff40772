"""What the tensors of a graph hold in memory, each byte counted once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import VARIABLES

__all__ = ["GraphMemory", "graph_memory", "variables_bytes"]

# Operations whose outputs are in the memory of their first input. Those that hand on a reference
# to a variable are further ones.
_ALIASES = frozenset(
    [
        *("Identity", "ReadVariableOp", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
        *("PreventGradient", "Snapshot", "CheckNumerics", "Switch", "Enter", "Exit"),
    ]
)
# Operations that write their output into the memory of an input, if nothing else reads it and it is
# of the same size.
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
# What they never write to: whoever feeds a tensor still has it.
_KEPT = VARIABLES | frozenset(["Const", "Placeholder", "PlaceholderWithDefault"])


@dataclasses.dataclass(frozen=True, eq=False)
class GraphMemory:
    """Memory of a graph.

    Attributes:
        resident_bytes: int64 [num_operations], what an operation holds for the whole step.
        local_bytes: int64 [num_tensors], what a tensor holds where it is made.
        readers: by tensor the places of the operations that it must not be freed before.
    """

    resident_bytes: np.ndarray
    local_bytes: np.ndarray
    readers: Mapping[int, Sequence[int]]


def graph_memory(
    graph: OpGraph,
    groups: np.ndarray,
    number: np.ndarray,
    readers: Mapping[int, Sequence[int]],
    tensor_bytes: np.ndarray,
) -> GraphMemory:
    """Works out what is resident, and counts no byte twice where operations share a buffer.

    Variables and constants are resident, and what is read from them holds nothing where it is
    made. Reshaping a tensor makes another one in the same memory, if both are in one group. Where
    no other group reads it, whoever reads it holds the tensor behind it. Where another group does,
    it holds the memory until that is done, and what is behind it holds nothing.

    Counted twice is what other groups read under two names, and what is read in its group under
    one name and by other groups under another. Left out is what is behind handles other than of
    variables.

    Args:
        graph: the graph.
        groups: int32 [num_operations], the group of each operation that the step needs.
        number: int32 [num_operations], the place of each operation in the problem, -1 for none.
        readers: by tensor the places of the operations that read it.
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

    for root, tensors in _buffers(
        graph, groups, number, operation_at, readers, tensor_bytes
    ).items():
        maker = int(graph.tensor_producer[root])
        buffer_bytes = max(0, int(tensor_bytes[tensors].max()))
        if variables[maker]:
            resident[maker] = max(_variable_bytes(graph, maker), buffer_bytes)
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


def variables_bytes(graph: OpGraph) -> int:
    """Adds up what the variables hold that a step needs."""
    places = np.flatnonzero(graph.has_type(VARIABLES) & graph.needed)
    return sum(_variable_bytes(graph, i) for i in places.tolist())


def _buffers(
    graph: OpGraph,
    groups: np.ndarray,
    number: np.ndarray,
    operation_at: np.ndarray,
    readers: Mapping[int, Sequence[int]],
    tensor_bytes: np.ndarray,
) -> dict[int, list[int]]:
    """Lists the tensors in each piece of memory, topologically, by the one that it was made for.

    Tensors share memory only within a group: beyond it they may be on another device.
    """
    shares = graph.has_type(
        name
        for name in graph.type_names
        if name in _ALIASES or (_hands_out_references(name) and name not in VARIABLES)
    )
    in_place = graph.has_type(_IN_PLACE)
    kept = graph.has_type(_KEPT)
    root = np.arange(len(graph.tensor_dtypes))
    buffers: dict[int, list[int]] = {}
    # Memory that somebody else may still read, under an earlier name.
    shared: set[int] = set()

    def may_overwrite(i: int, tensor: int) -> bool:
        first = int(root[tensor])
        return (
            first not in shared
            and buffers[first][-1] == tensor
            and set(readers.get(tensor, ())) == {int(number[i])}
            and tensor_bytes[tensor] == tensor_bytes[graph.output_start[i]]
            and not kept[graph.tensor_producer[first]]
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


def _hands_out_references(op_type: str) -> bool:
    definition = op_def_registry.get(op_type)
    return definition is not None and any(output.is_ref for output in definition.output_arg)


def _variable_bytes(graph: OpGraph, i: int) -> int:
    attr = graph.graph_def.node[i].attr
    dims = attr["shape"].shape.dim
    dtype = tf.dtypes.as_dtype(attr["dtype"].type).base_dtype
    if dtype in (tf.string, tf.resource, tf.variant):
        return 0
    return math.prod(max(dim.size, 1) for dim in dims) * dtype.size
