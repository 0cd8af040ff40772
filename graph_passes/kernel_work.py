"""Kernels of the operations of a graph, with floating point operations and bytes of each."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from graph_passes.errors import GraphError
from graph_passes.function_body import Argument, Body, FunctionBodies
from graph_passes.loop_iterations import FrameLoops, FunctionalLoop
from graph_passes.nested_runs import Nested, run_nested
from graph_passes.op_graph import OpGraph
from graph_passes.small_values import SmallValues
from graph_passes.tensors import SIZELESS
from graph_passes.unknown_sizes import unknown_sizes
from graph_passes.util.messages import quote
from graph_passes.work import (
    CUDNN_LAYERS,
    FREE,
    PICKS,
    count_contraction_flops,
    count_elements,
    count_sequence_steps,
    find_product_sizes,
    has_prefix,
    work_rule,
)

__all__ = ["UPDATES", "KernelWork", "kernel_rule", "kernel_work", "tensor_sizes"]

# Operations that store or return a tensor without copying it.
_BY_REFERENCE = frozenset(
    [
        *("EmptyTensorList", "TensorListReserve", "TensorListLength", "TensorListResize"),
        *("TensorListPushBack", "TensorListPopBack", "TensorListSetItem", "TensorListGetItem"),
        *("TensorArrayV3", "TensorArrayGradV3", "TensorArraySizeV3", "TensorArrayCloseV3"),
        *("TensorArrayWriteV3", "TensorArrayReadV3", "StackV2", "StackPushV2", "StackPopV2"),
    ]
)
#: Prefixes of the types of operations that change state in place.
UPDATES = (
    *("Apply", "SparseApply", "Scatter", "Assign"),
    *("ResourceApply", "ResourceSparseApply", "ResourceScatter"),
)
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any")
_LOOPS = ("While", "StatelessWhile")
# Operations that run functions, and the attributes that name them. Only one of several branches
# runs.
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
    "While": ("body", "cond"),
    "StatelessWhile": ("body", "cond"),
}
# The number of leading inputs that are not arguments of the functions.
_LEADING_INPUTS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}


@dataclasses.dataclass(frozen=True, eq=False)
class KernelWork:
    """The kernels of a graph, in the order of its operations.

    An operation has one kernel, which a whole recurrent layer runs for each time step. Operations
    that only forward tensors have none, and operations that call functions have those of their
    bodies.

    Attributes:
        operations: int32 [num_kernels], the operation of each kernel.
        flops: float64 [num_kernels], the floating point operations of a contraction, 0 for other
            kernels.
        touched_bytes: float64 [num_kernels], the bytes read and written.
        product_sizes: float64 [num_kernels], the smallest dimension of the matrix product that a
            contraction is; infinite for other kernels.
        repeats: float64 [num_kernels], the number of runs in a step.
        on_host: bool [num_kernels], true for integer arithmetic, such as on sizes and positions,
            which TensorFlow runs on the host for every device.
        called: bool [num_kernels], true for kernels in bodies of functions.
        unknown_sizes: descriptions of the tensors, also in bodies, whose unknown dimensions count
            as 1.
        unknown_loops: descriptions of the loops that count as one iteration.
    """

    operations: np.ndarray
    flops: np.ndarray
    touched_bytes: np.ndarray
    product_sizes: np.ndarray
    repeats: np.ndarray
    on_host: np.ndarray
    called: np.ndarray
    unknown_sizes: tuple[str, ...]
    unknown_loops: tuple[str, ...]


def kernel_work(graph: OpGraph) -> KernelWork:
    """Computes the kernels of a graph from its shapes.

    A kernel reads its inputs and writes its outputs. Lookups and slices touch only the selected
    part of their input, and updates only the updated rows of a variable; each updated state is read
    and written. A reduction without effect on the number of elements has no kernel. Unknown sizes
    count as 1. The body of a while loop counts with the upper bound of its iterations, as far as it
    follows from constants and shapes, else once. Among branches, the one with the most work counts.

    Args:
        graph: the graph.

    Returns:
        The kernels of all needed operations.
    """
    calls = _Calls(graph)
    work, _ = run_nested(calls.find_kernels(graph))
    return dataclasses.replace(
        work,
        unknown_sizes=(*unknown_sizes(graph), *calls.unknown_sizes),
        unknown_loops=tuple(calls.unknown_loops),
    )


def kernel_rule(op_type: str) -> str:
    """Returns the name of the rule that counts the work of a kernel.

    Args:
        op_type: the type of the operation.

    Returns:
        A rule of `work_rule`; or "free": no kernel; "picks": touches only the returned part of its
        first input; "updates": reads and writes the states of its handles; "reduction": no kernel
        if the number of elements stays the same; "bytes": reads and writes all.
    """
    if op_type in FREE or op_type in _BY_REFERENCE:
        return "free"
    if op_type in PICKS:
        return "picks"
    if op_type in _REDUCTIONS:
        return "reduction"
    if op_type.startswith(UPDATES):
        return "updates"
    return work_rule(op_type) or "bytes"


def tensor_sizes(graph: OpGraph) -> np.ndarray:
    """Computes the bytes of each tensor: int64 [num_tensors].

    Unknown dimensions count as 1, handles and strings as 0 bytes, and what a layer of cuDNN keeps
    for its gradient as its gates, its cell and its output.
    """
    element_bytes = {
        code: 0 if code in SIZELESS else tf.dtypes.as_dtype(code).size
        for code in np.unique(graph.tensor_dtypes).tolist()
    }
    each = np.array([element_bytes[code] for code in graph.tensor_dtypes.tolist()], np.float64)
    sizes = (each * count_elements(graph)).astype(np.int64)
    for i in np.flatnonzero(graph.has_type(CUDNN_LAYERS)).tolist():
        output = int(graph.output_start[i])
        sizes[output + _RESERVE_PORT] = _RESERVED_PER_OUTPUT * sizes[output]
    return sizes


# The output of a layer of cuDNN that only its gradient reads, and its elements per element of the
# first output: the four gates of an LSTM, the cell and the output.
_RESERVE_PORT, _RESERVED_PER_OUTPUT = 3, 6

# float64 [5, num_kernels]: flops, touched bytes, repeats, on_host and product sizes of kernels.
_Rows = np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class _BodyWork:
    """The kernels of a function, and the known values of its results."""

    rows: _Rows
    body: Body
    results: tuple[np.ndarray | None, ...]


class _Calls:
    """The kernels of functions, cached by function and arguments."""

    def __init__(self, graph: OpGraph) -> None:
        self._bodies = FunctionBodies(graph.graph_def)
        self._work_cache: dict[tuple[str, tuple[Argument, ...]], _BodyWork] = {}
        self.unknown_sizes: list[str] = []
        self.unknown_loops: list[str] = []

    def find_kernels(
        self, graph: OpGraph, function: str = ""
    ) -> Nested[tuple[KernelWork, SmallValues]]:
        """Computes the kernels of a graph or function body, and its small values."""
        loops = FrameLoops(graph)
        called: dict[int, _Rows] = {}
        calls = [name for name in graph.type_names if name in _CALLS or name in self._bodies]
        # Results of a call may bound a loop whose condition reads them.
        for i in graph.order[(graph.has_type(calls) & graph.needed)[graph.order]].tolist():
            rows = yield self._find_call_rows(graph, i, loops.condition_values, function)
            if rows is not None:
                called[i] = rows
        repeats, unknown = loops.count_runs()
        for frame in unknown:
            loop_name = quote(frame.removesuffix("/while_context"))
            self.unknown_loops.append(_describe(loop_name, function))
        has_kernel = graph.needed & ~graph.has_type(FREE | _BY_REFERENCE)
        has_kernel[list(called)] = False
        has_kernel[_find_trivial_reductions(graph)] = False
        own = np.flatnonzero(has_kernel)
        steps = count_sequence_steps(graph)[own]
        columns = [
            count_contraction_flops(graph)[own] / steps,
            _count_touched_bytes(graph)[own] / steps,
            steps,
            _find_host_kernels(graph)[own],
            find_product_sizes(graph)[own],
        ]
        rows = np.concatenate([np.stack(columns), *called.values()], axis=1)
        counts = [each.shape[1] for each in called.values()]
        operations = np.concatenate([own, np.repeat(list(called), counts)]).astype(np.int32)
        rows[2] *= repeats[operations]
        is_called = np.arange(len(operations)) >= len(own)
        order = np.argsort(operations, kind="stable")
        flops, touched, runs, on_host, product_sizes = rows[:, order]
        operations, is_called = operations[order], is_called[order]
        work = KernelWork(
            operations=operations,
            flops=flops,
            touched_bytes=touched,
            product_sizes=product_sizes,
            repeats=runs,
            on_host=on_host.astype(bool),
            called=is_called,
            unknown_sizes=(),
            unknown_loops=(),
        )
        return work, loops.condition_values

    def _find_call_rows(
        self, graph: OpGraph, i: int, values: SmallValues, function: str
    ) -> Nested[_Rows | None]:
        """Computes the kernels of a call; None if its functions cannot be read."""
        node = graph.graph_def.node[i]
        names = [node.op]
        if node.op in _CALLS:
            of_node = [node.attr[attr] for attr in _CALLS[node.op]]
            names = [f.name for value in of_node for f in (value.list.func or [value.func])]
        tensors = graph.input_tensors[i][_LEADING_INPUTS.get(node.op, 0) :]
        numbers = [values.value(tensor) for tensor in tensors]
        is_loop = node.op in _LOOPS
        # Only invariant arguments have the same value in every iteration.
        is_invariant = (
            self._bodies.find_invariant_arguments(names[0]) if is_loop else [True] * len(tensors)
        )
        arguments = tuple(
            _make_argument(graph, tensor, number if invariant else None)
            for tensor, number, invariant in zip(tensors, numbers, is_invariant, strict=False)
        )
        bodies = []
        try:
            for name in names:
                bodies.append((yield self._find_body_work(name, arguments)))
        except (GraphError, ValueError):
            return None
        if is_loop:
            body, condition = bodies
            loop = FunctionalLoop(numbers, condition.body, body.body)
            self._record_results(
                graph, i, values, [loop.find_last_value(k) for k in range(len(numbers))]
            )
            iterations = loop.num_iterations
            if iterations is None:
                self.unknown_loops.append(_describe(quote(node.name), function))
                iterations = 1
            rows, checks = body.rows.copy(), condition.rows.copy()
            rows[2] *= iterations
            checks[2] *= iterations + 1
            return np.concatenate([rows, checks], axis=1)
        if len(bodies) == 1:
            self._record_results(graph, i, values, bodies[0].results)
        return max(
            (each.rows for each in bodies),
            key=lambda rows: ((rows[0] * rows[2]).sum(), (rows[1] * rows[2]).sum()),
        )

    def _record_results(
        self, graph: OpGraph, i: int, values: SmallValues, results: Sequence[Any]
    ) -> None:
        """Records the known results of a call."""
        for port, result in enumerate(results):
            if result is not None:
                values.set_value(int(graph.output_start[i]) + port, np.asarray(result))

    def _find_body_work(self, name: str, arguments: tuple[Argument, ...]) -> Nested[_BodyWork]:
        key = (name, arguments)
        if key not in self._work_cache:
            body = self._bodies.body(name, arguments)
            self.unknown_sizes += [_describe(each, name) for each in unknown_sizes(body.graph)]
            work, values = yield self.find_kernels(body.graph, name)
            rows = np.stack(
                [work.flops, work.touched_bytes, work.repeats, work.on_host, work.product_sizes]
            )
            results = tuple(values.value(tensor) for tensor in body.results)
            self._work_cache[key] = _BodyWork(rows, body, results)
        return self._work_cache[key]


def _describe(description: str, function: str) -> str:
    return f"{description} in function {function!r}" if function else description


def _make_argument(graph: OpGraph, tensor: int, number: np.ndarray | None = None) -> Argument:
    producer = int(graph.tensor_producer[tensor])
    node = graph.graph_def.node[producer]
    is_int = int(graph.tensor_dtypes[tensor]) in (types_pb2.DT_INT32, types_pb2.DT_INT64)
    if number is not None and is_int and graph.tensor_shapes[tensor] == ():
        return Argument((), constant=int(number))
    if node.op == "Identity":
        return _make_argument(graph, graph.input_tensors[producer][0])
    if node.op == "VarHandleOp":
        shape = node.attr["shape"].shape
        dimensions = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        return Argument(dimensions, node.attr["dtype"].type)
    element = graph.tensor_list_elements.get(tensor)
    if element is not None:
        return Argument(element.shape, element.dtype, element.value)
    return Argument(graph.tensor_shapes[tensor])


def _count_touched_bytes(graph: OpGraph) -> np.ndarray:
    """Computes the bytes that each kernel reads and writes: float64 [num_operations]."""
    sizes = tensor_sizes(graph).astype(np.float64)
    num_operations = graph.num_operations
    # Without tensors, bincount returns integers.
    written = np.bincount(graph.tensor_producer, sizes, num_operations).astype(np.float64)
    by_value = ~graph.edge_is_handle
    consumers, read_sizes = graph.edge_consumer[by_value], sizes[graph.edge_tensor[by_value]]
    read = np.bincount(consumers, read_sizes, num_operations).astype(np.float64)

    picks = graph.has_type(PICKS)
    # Edges are sorted by consumer and input number, so the first is the input of a slice or lookup.
    first = np.r_[True, graph.edge_consumer[1:] != graph.edge_consumer[:-1]]
    source = first[: len(by_value)] & by_value & picks[graph.edge_consumer]
    read[graph.edge_consumer[source]] -= sizes[graph.edge_tensor[source]]
    read[picks] += written[picks]

    handles = np.bincount(graph.edge_consumer[graph.edge_is_handle], minlength=num_operations)
    updates = has_prefix(graph, UPDATES) & (handles > 0)
    largest = np.zeros(num_operations)
    np.maximum.at(largest, consumers, read_sizes)
    return np.where(updates, read + 2 * handles * largest, read + written)


def _find_trivial_reductions(graph: OpGraph) -> np.ndarray:
    """Finds the reductions that keep all elements, for which TensorFlow forwards the input.

    They occur in gradients of broadcasting operations that were built with unknown sizes.

    Returns:
        int64, the numbers of these operations.
    """
    shapes = graph.tensor_shapes
    found = []
    for i in np.flatnonzero(graph.has_type(_REDUCTIONS)).tolist():
        given, left = shapes[graph.input_tensors[i][0]], shapes[int(graph.output_start[i])]
        if given is None or left is None or -1 in given:
            continue
        if math.prod(given) == math.prod(left):
            found.append(i)
    return np.array(found, np.int64)


def _find_host_kernels(graph: OpGraph) -> np.ndarray:
    """Finds the operations that read and write only int32: bool [num_operations]."""
    is_int32 = graph.tensor_dtypes == types_pb2.DT_INT32
    others = np.zeros(graph.num_operations, bool)
    others[graph.tensor_producer[~is_int32]] = True
    others[graph.edge_consumer[~is_int32[graph.edge_tensor]]] = True
    result: np.ndarray = ~others & (np.diff(graph.output_start) > 0)
    return result
