"""Estimates of the work of operations from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from graph_passes.op_graph import OpGraph
from graph_passes.op_types import LOOKUPS, VARIABLES

__all__ = [
    "CONTRACTIONS",
    "CONVOLUTIONS",
    "CUDNN_LAYERS",
    "FREE",
    "PICKS",
    "ROW_UPDATES",
    "count_contraction_flops",
    "count_elements",
    "count_sequence_steps",
    "count_window_bytes",
    "estimate_work",
    "find_product_sizes",
    "has_prefix",
    "work_rule",
]

# Operations other than contractions are bound by memory: per element of the largest tensor they
# move a few values, which takes about as long as this number of floating point operations.
_FLOPS_PER_ELEMENT = 16.0
_FLOAT_BYTES = 4

#: Operations without work in a step: they forward tensors, or hold or create them once.
FREE = frozenset(
    [
        *VARIABLES,
        *("Const", "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "NoOp"),
        *("Identity", "IdentityN", "RefIdentity", "ReadVariableOp", "Snapshot"),
        *("StopGradient", "PreventGradient", "CheckNumerics"),
        *("Reshape", "ExpandDims", "Squeeze", "Shape", "ShapeN", "VariableShape", "Size", "Rank"),
        *("Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration"),
        *("Switch", "RefSwitch", "Merge", "RefMerge", "LoopCond"),
    ]
)
#: Operations that touch only the part of their input that they return.
PICKS = LOOKUPS | frozenset(["Slice", "StridedSlice"])
#: Prefixes of the types of operations that touch only the given rows of a reference.
ROW_UPDATES = ("SparseApply", "Scatter")

_MATMULS = frozenset(
    ["MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "SparseMatMul", "_FusedMatMul"]
)
# The second input of forward convolutions is the filter.
_FORWARD_CONVOLUTIONS = frozenset(["Conv2D", "Conv3D", "DepthwiseConv2dNative", "_FusedConv2D"])
_INPUT_GRADIENTS = frozenset(
    ["Conv2DBackpropInput", "Conv3DBackpropInputV2", "DepthwiseConv2dNativeBackpropInput"]
)
_FILTER_GRADIENTS = frozenset(
    ["Conv2DBackpropFilter", "Conv3DBackpropFilterV2", "DepthwiseConv2dNativeBackpropFilter"]
)
# Types with a whole recurrent cell: the numbers of the data input and the weight inputs.
_CELLS = {
    "LSTMBlockCell": (0, (3,)),
    "BlockLSTM": (1, (4,)),
    "BlockLSTMV2": (1, (4,)),
    "GRUBlockCell": (0, (2, 3)),
    "CudnnRNN": (0, (3,)),
    "CudnnRNNV2": (0, (3,)),
    "CudnnRNNV3": (0, (3,)),
}
# Gradients of cells have the same first inputs, and multiply with both the weights and the data.
_CELL_GRADIENTS = {
    "BlockLSTMGrad": "BlockLSTM",
    "BlockLSTMGradV2": "BlockLSTMV2",
    "CudnnRNNBackprop": "CudnnRNN",
    "CudnnRNNBackpropV2": "CudnnRNNV2",
    "CudnnRNNBackpropV3": "CudnnRNNV3",
}

#: Types with a whole recurrent layer of cuDNN.
CUDNN_LAYERS = frozenset(["CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"])
_BLOCK_LAYERS = frozenset(["BlockLSTM", "BlockLSTMV2"])

#: Convolutions and their gradients.
CONVOLUTIONS = _FORWARD_CONVOLUTIONS | _INPUT_GRADIENTS | _FILTER_GRADIENTS

#: Operation types that multiply inputs and weights, which is most of the work of a model.
CONTRACTIONS = _MATMULS | _FORWARD_CONVOLUTIONS | frozenset(_CELLS) | frozenset(["Einsum"])


def estimate_work(graph: OpGraph) -> np.ndarray:
    """Estimates the floating point operations of each operation in one step.

    A dimension of unknown size counts as 1, a tensor of unknown rank as one element. Contractions
    count two operations per multiply-and-add, operations that only forward a tensor count 0, and
    all others count by their largest tensor.

    Args:
        graph: the graph.

    Returns:
        float64 [num_operations], at least 0.
    """
    elements = count_elements(graph)
    written, read = np.zeros(graph.num_operations), np.zeros(graph.num_operations)
    np.maximum.at(written, graph.tensor_producer, elements)
    by_value = ~graph.edge_is_handle
    np.maximum.at(read, graph.edge_consumer[by_value], elements[graph.edge_tensor[by_value]])
    read[_contracts(graph) | graph.has_type(PICKS)] = 0
    written[has_prefix(graph, ROW_UPDATES)] = 0
    work = _FLOPS_PER_ELEMENT * np.maximum(written, read)
    work[graph.has_type(FREE)] = 0
    return work + count_contraction_flops(graph)


def work_rule(op_type: str) -> str | None:
    """Returns the rule that counts the work of a contraction, with its parameters.

    Args:
        op_type: the type of an operation.

    Returns:
        "matmul"; "einsum"; "convolution:N", "convolution_input_gradient:N" or
        "convolution_filter_gradient:N", which sum over all but the last N dimensions of the filter;
        "cell:PRODUCTS:DATA:WEIGHTS:..." for whole recurrent cells, with the number of products and
        the numbers of the data and weight inputs; None for types that are no contraction.

    Example:
        >>> work_rule("DepthwiseConv2dNative"), work_rule("BlockLSTMGrad"), work_rule("Add")
        ('convolution:2', 'cell:2:1:4', None)
    """
    if op_type in _MATMULS:
        return "matmul"
    if op_type == "Einsum":
        return "einsum"
    num_channel_dims = 2 if op_type.startswith("Depthwise") else 1
    for name, types in (
        ("convolution", _FORWARD_CONVOLUTIONS),
        ("convolution_input_gradient", _INPUT_GRADIENTS),
        ("convolution_filter_gradient", _FILTER_GRADIENTS),
    ):
        if op_type in types:
            return f"{name}:{num_channel_dims}"
    cell = _CELL_GRADIENTS.get(op_type, op_type)
    if cell not in _CELLS:
        return None
    data, weights = _CELLS[cell]
    products = 2 if op_type in _CELL_GRADIENTS else 1
    return ":".join(map(str, ("cell", products, data, *weights)))


def count_elements(graph: OpGraph) -> np.ndarray:
    """Counts the elements of each tensor: float64 [num_tensors].

    A dimension of unknown size counts as 1, a tensor of unknown rank as one element.
    """
    # Few shapes are distinct.
    elements = {
        shape: 1 if shape is None else math.prod(max(size, 1) for size in shape)
        for shape in set(graph.tensor_shapes)
    }
    return np.array([elements[shape] for shape in graph.tensor_shapes], np.float64)


def count_contraction_flops(graph: OpGraph) -> np.ndarray:
    """Counts the floating point operations of contractions: two for each multiply-and-add.

    Args:
        graph: the graph; unknown sizes count as 1.

    Returns:
        float64 [num_operations], 0 for other operations.
    """
    elements = count_elements(graph)
    flops = np.zeros(graph.num_operations)
    for i in np.flatnonzero(_contracts(graph)).tolist():
        flops[i] = _count_flops(graph, i, elements)
    return flops


def count_sequence_steps(graph: OpGraph) -> np.ndarray:
    """Counts the time steps of whole recurrent layers, each of which waits for the one before.

    Args:
        graph: the graph; unknown sizes count as 1.

    Returns:
        float64 [num_operations], 1 for other operations.
    """
    steps = np.ones(graph.num_operations)
    layers = _BLOCK_LAYERS | CUDNN_LAYERS
    gradients = frozenset(name for name, layer in _CELL_GRADIENTS.items() if layer in layers)
    for i in np.flatnonzero(graph.has_type(layers | gradients)).tolist():
        op_type = graph.type_of(i)
        data, _ = _CELLS[_CELL_GRADIENTS.get(op_type, op_type)]
        attr = graph.graph_def.node[i].attr
        # Sequences are [steps, batch, units], or else [batch, steps, units].
        axis = 1 if "time_major" in attr and not attr["time_major"].b else 0
        shape = graph.tensor_shapes[graph.input_tensors[i][data]]
        steps[i] = max(shape[axis], 1) if shape else 1
    return steps


def find_product_sizes(graph: OpGraph) -> np.ndarray:
    """Finds the smallest dimension of the matrix product that each contraction is.

    A convolution is the product of its windows, a row for each position, and its filters, a column
    for each output channel.

    Args:
        graph: the graph; unknown sizes count as 1.

    Returns:
        float64 [num_operations], the smallest of the rows, the columns and the terms of each sum;
        infinite for operations that are no such product, and for depthwise convolutions, recurrent
        cells and `Einsum`.
    """
    elements = count_elements(graph)
    sizes = np.full(graph.num_operations, np.inf)
    for i in np.flatnonzero(graph.has_type(_MATMULS)).tolist():
        output = int(graph.output_start[i])
        *_, rows, columns = (1, 1, *(graph.tensor_shapes[output] or ()))
        terms = _count_flops(graph, i, elements) / (2.0 * elements[output])
        sizes[i] = min(max(rows, 1), max(columns, 1), terms)
    for i, *dimensions in _list_window_products(graph, elements):
        sizes[i] = min(dimensions)
    return sizes


def count_window_bytes(graph: OpGraph) -> np.ndarray:
    """Counts the bytes of the matrix of windows of each convolution that is not depthwise.

    Args:
        graph: the graph; unknown sizes count as 1.

    Returns:
        float64 [num_operations], 0 for other operations.
    """
    window_bytes = np.zeros(graph.num_operations)
    for i, rows, _, terms in _list_window_products(graph, count_elements(graph)):
        window_bytes[i] = _FLOAT_BYTES * rows * terms
    return window_bytes


def _list_window_products(
    graph: OpGraph, elements: np.ndarray
) -> Iterator[tuple[int, float, float, float]]:
    """Lists the rows, columns and terms of the matrix product that each convolution is."""
    types = frozenset(op_type for op_type in CONVOLUTIONS if not op_type.startswith("Depthwise"))
    for i in np.flatnonzero(graph.has_type(types)).tolist():
        op_type, output = graph.type_of(i), int(graph.output_start[i])
        inputs = graph.input_tensors[i]
        filters = output if op_type in _FILTER_GRADIENTS else inputs[1]
        result = output if op_type in _FORWARD_CONVOLUTIONS else inputs[2]
        *_, columns = (1, *(graph.tensor_shapes[filters] or ()))
        columns = max(columns, 1)
        yield i, float(elements[result]) / columns, columns, float(elements[filters]) / columns


def has_prefix(graph: OpGraph, prefixes: tuple[str, ...]) -> np.ndarray:
    """Finds the operations whose type begins with one of the prefixes: bool [num_operations]."""
    return graph.has_type(name for name in graph.type_names if name.startswith(prefixes))


def _contracts(graph: OpGraph) -> np.ndarray:
    return graph.has_type(CONTRACTIONS | CONVOLUTIONS | frozenset(_CELL_GRADIENTS))


def _count_flops(graph: OpGraph, i: int, elements: np.ndarray) -> float:
    op_type, inputs = graph.type_of(i), graph.input_tensors[i]
    shapes = [graph.tensor_shapes[t] for t in inputs]
    output = int(graph.output_start[i])
    attr = graph.graph_def.node[i].attr
    if op_type in _MATMULS:
        transposed = any(n in attr and attr[n].b for n in ("transpose_a", "adj_x"))
        inner = shapes[0][-2 if transposed else -1] if shapes[0] and len(shapes[0]) > 1 else 1
        return 2.0 * elements[output] * max(inner, 1)
    if op_type in _FORWARD_CONVOLUTIONS:
        return 2.0 * elements[output] * _count_multiplications(op_type, shapes[1])
    if op_type in _INPUT_GRADIENTS:
        return 2.0 * elements[inputs[2]] * _count_multiplications(op_type, shapes[1])
    if op_type in _FILTER_GRADIENTS:
        return (
            2.0 * elements[inputs[2]] * _count_multiplications(op_type, graph.tensor_shapes[output])
        )
    if op_type == "Einsum":
        return 2.0 * _count_einsum_multiplications(attr["equation"].s.decode(), shapes)
    data, weights = _CELLS[_CELL_GRADIENTS.get(op_type, op_type)]
    *_, width = shapes[data] or (1,)
    rows = elements[inputs[data]] / max(width, 1)
    products = 2.0 if op_type in _CELL_GRADIENTS else 1.0
    return 2.0 * products * rows * sum(elements[inputs[w]] for w in weights)


def _count_multiplications(op_type: str, filter_shape: tuple[int, ...] | None) -> int:
    """Counts the products that each output element of a convolution adds up."""
    sizes = [max(size, 1) for size in filter_shape or ()]
    # Output channels are the last dimension, or the last two of a depthwise filter.
    return math.prod(sizes[: -2 if op_type.startswith("Depthwise") else -1])


def _count_einsum_multiplications(equation: str, shapes: list[tuple[int, ...] | None]) -> int:
    """Multiplies the sizes of all subscripts."""
    sizes: dict[str, int] = {}
    operands = equation.split("->")[0].split(",")
    for subscripts, shape in zip(operands, shapes, strict=True):
        before, dots, after = subscripts.partition("...")
        # Einsum aligns the dimensions of the ellipsis from the right.
        num_dots = len(shape or ()) - len(before) - len(after) if dots else 0
        labels = [*before, *(f".{k}" for k in range(num_dots, 0, -1)), *after]
        for label, size in zip(labels, shape or (), strict=False):
            sizes[label] = max(sizes.get(label, 1), size)
    return math.prod(sizes.values())
