"""What the operations of a graph have a device do: kernels, with operations and bytes of each."""

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
from graph_passes.util.messages import quoted
from graph_passes.work import (
    FREE,
    PICKS,
    contraction_flops,
    has_prefix,
    tensor_elements,
    work_rule,
)

__all__ = ["KernelWork", "kernel_rule", "kernel_work", "tensor_sizes"]

# Operations that keep or give back a tensor without copying it.
_BY_REFERENCE = frozenset(
    [
        *("EmptyTensorList", "TensorListReserve", "TensorListLength", "TensorListResize"),
        *("TensorListPushBack", "TensorListPopBack", "TensorListSetItem", "TensorListGetItem"),
        *("TensorArrayV3", "TensorArrayGradV3", "TensorArraySizeV3", "TensorArrayCloseV3"),
        *("TensorArrayWriteV3", "TensorArrayReadV3", "StackV2", "StackPushV2", "StackPopV2"),
    ]
)
# Operations that change state in place: their types begin so.
_UPDATES = (
    *("Apply", "SparseApply", "Scatter", "Assign"),
    *("ResourceApply", "ResourceSparseApply", "ResourceScatter"),
)
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "All", "Any")
_LOOPS = ("While", "StatelessWhile")
# Operations that run functions, and the attributes that name them. Of branches only one runs.
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
# Inputs that are not handed to the functions.
_NOT_ARGUMENTS = {"If": 1, "StatelessIf": 1, "Case": 1, "StatelessCase": 1}


@dataclasses.dataclass(frozen=True, eq=False)
class KernelWork:
    """The kernels of a graph, in the order of its operations.

    An operation has one kernel; one that only hands on tensors has none, and one that calls
    functions has those of their bodies.

    Attributes:
        operations: int32 [num_kernels], the operation of each kernel.
        flops: float64 [num_kernels], the floating point operations of a contraction, 0 for any
            other kernel.
        touched_bytes: float64 [num_kernels], what it reads and writes.
        repeats: float64 [num_kernels], how often it runs in a step.
        on_host: bool [num_kernels], true for arithmetic on integers like sizes and positions, which
            TensorFlow does on the host whatever the device.
        called: bool [num_kernels], true for those in bodies of functions.
        unknown_sizes: descriptions of the tensors, those in bodies included, of which an unknown
            dimension counts as 1.
        unknown_loops: descriptions of the loops of which one iteration counts.
    """

    operations: np.ndarray
    flops: np.ndarray
    touched_bytes: np.ndarray
    repeats: np.ndarray
    on_host: np.ndarray
    called: np.ndarray
    unknown_sizes: tuple[str, ...]
    unknown_loops: tuple[str, ...]


def kernel_work(graph: OpGraph) -> KernelWork:
    """Works out the kernels of a graph from its shapes.

    A kernel reads its inputs and writes its outputs, but touches only the part of a table or tensor
    that it looks up or cuts out, and only the rows of a variable that it updates; each state that
    it updates is read and written. A reduction that leaves all elements hands them on. Unknown
    sizes count as 1. The body of a while loop counts as often as it runs at most, as far as
    constants and shapes tell that, and else once. Of branches, the one with the most work counts.

    Args:
        graph: the graph.

    Returns:
        The kernels of all operations that a step needs.
    """
    calls = _Calls(graph)
    work, _ = run_nested(calls.kernels(graph))
    return dataclasses.replace(
        work,
        unknown_sizes=(*unknown_sizes(graph), *calls.unknown_sizes),
        unknown_loops=tuple(calls.unknown_loops),
    )


def kernel_rule(op_type: str) -> str:
    """Names the rule by which the kernel of a type of operation counts its work.

    Args:
        op_type: the type.

    Returns:
        A rule of `work_rule`; or "free", without a kernel; "picks", which touches of its first
        input only what it hands out; "updates", which reads and writes the states that it has
        handles of; "reduction", free where it leaves all elements; "bytes", which reads and writes
        all.
    """
    if op_type in FREE or op_type in _BY_REFERENCE:
        return "free"
    if op_type in PICKS:
        return "picks"
    if op_type in _REDUCTIONS:
        return "reduction"
    if op_type.startswith(_UPDATES):
        return "updates"
    return work_rule(op_type) or "bytes"


def tensor_sizes(graph: OpGraph) -> np.ndarray:
    """Computes the size of each tensor, an unknown dimension as 1: int64 [num_tensors].

    Handles and texts count nothing.
    """
    element_bytes = {
        code: 0 if code in SIZELESS else tf.dtypes.as_dtype(code).size
        for code in np.unique(graph.tensor_dtypes).tolist()
    }
    each = np.array([element_bytes[code] for code in graph.tensor_dtypes.tolist()], np.float64)
    return (each * tensor_elements(graph)).astype(np.int64)


# float64 [4, num_kernels]: flops, touched bytes, repeats and on_host of kernels.
_Rows = np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class _BodyWork:
    """The kernels of a function, and the values of its results as far as they are known."""

    rows: _Rows
    body: Body
    results: tuple[np.ndarray | None, ...]


class _Calls:
    """The kernels of functions, each function and shape of arguments worked out once."""

    def __init__(self, graph: OpGraph) -> None:
        self._bodies = FunctionBodies(graph.graph_def)
        self._known: dict[tuple[str, tuple[Argument, ...]], _BodyWork] = {}
        self.unknown_sizes: list[str] = []
        self.unknown_loops: list[str] = []

    def kernels(self, graph: OpGraph, function: str = "") -> Nested[tuple[KernelWork, SmallValues]]:
        """Lists the kernels of a graph or of the body of a function, and finds small values."""
        loops = FrameLoops(graph)
        called: dict[int, _Rows] = {}
        calls = [name for name in graph.type_names if name in _CALLS or name in self._bodies]
        # Results of a call may bound a loop whose condition reads them.
        for i in graph.order[(graph.has_type(calls) & graph.needed)[graph.order]].tolist():
            rows = yield self._rows_of_call(graph, i, loops.condition_values, function)
            if rows is not None:
                called[i] = rows
        repeats, unknown = loops.of_operations()
        for frame in unknown:
            loop_name = quoted(frame.removesuffix("/while_context"))
            self.unknown_loops.append(_in_function(loop_name, function))
        launches = graph.needed & ~graph.has_type(FREE | _BY_REFERENCE)
        launches[list(called)] = False
        launches[_reduces_nothing(graph)] = False
        own = np.flatnonzero(launches)
        columns = [
            contraction_flops(graph)[own],
            _touched_bytes(graph)[own],
            np.ones(len(own)),
            _on_host(graph)[own],
        ]
        rows = np.concatenate([np.stack(columns), *called.values()], axis=1)
        counts = [each.shape[1] for each in called.values()]
        operations = np.concatenate([own, np.repeat(list(called), counts)]).astype(np.int32)
        rows[2] *= repeats[operations]
        is_called = np.arange(len(operations)) >= len(own)
        order = np.argsort(operations, kind="stable")
        flops, touched, runs, on_host = rows[:, order]
        operations, is_called = operations[order], is_called[order]
        work = KernelWork(operations, flops, touched, runs, on_host.astype(bool), is_called, (), ())
        return work, loops.condition_values

    def _rows_of_call(
        self, graph: OpGraph, i: int, values: SmallValues, function: str
    ) -> Nested[_Rows | None]:
        """Lists the kernels of a call; None where nothing is known of its functions."""
        node = graph.graph_def.node[i]
        names = [node.op]
        if node.op in _CALLS:
            of_node = [node.attr[attr] for attr in _CALLS[node.op]]
            names = [f.name for value in of_node for f in (value.list.func or [value.func])]
        tensors = graph.input_tensors[i][_NOT_ARGUMENTS.get(node.op, 0) :]
        numbers = [values.value(tensor) for tensor in tensors]
        is_loop = node.op in _LOOPS
        # Iterations change the others.
        stay = self._bodies.handed_on(names[0]) if is_loop else [True] * len(tensors)
        arguments = tuple(
            _argument(graph, tensor, number if stays else None)
            for tensor, number, stays in zip(tensors, numbers, stay, strict=False)
        )
        bodies = []
        try:
            for name in names:
                bodies.append((yield self._work_of_body(name, arguments)))
        except (GraphError, ValueError):
            return None
        if is_loop:
            body, condition = bodies
            loop = FunctionalLoop(numbers, condition.body, body.body)
            self._give(graph, i, values, [loop.last_value(k) for k in range(len(numbers))])
            trips = loop.num_iterations
            if trips is None:
                self.unknown_loops.append(_in_function(quoted(node.name), function))
                trips = 1
            rows, again = body.rows.copy(), condition.rows.copy()
            rows[2] *= trips
            again[2] *= trips + 1
            return np.concatenate([rows, again], axis=1)
        if len(bodies) == 1:
            self._give(graph, i, values, bodies[0].results)
        return max(
            (each.rows for each in bodies),
            key=lambda rows: ((rows[0] * rows[2]).sum(), (rows[1] * rows[2]).sum()),
        )

    def _give(self, graph: OpGraph, i: int, values: SmallValues, results: Sequence[Any]) -> None:
        """Keeps the results of a call that are known."""
        for port, result in enumerate(results):
            if result is not None:
                values.give(int(graph.output_start[i]) + port, np.asarray(result))

    def _work_of_body(self, name: str, arguments: tuple[Argument, ...]) -> Nested[_BodyWork]:
        key = (name, arguments)
        if key not in self._known:
            body = self._bodies.body(name, arguments)
            self.unknown_sizes += [_in_function(each, name) for each in unknown_sizes(body.graph)]
            work, values = yield self.kernels(body.graph, name)
            rows = np.stack([work.flops, work.touched_bytes, work.repeats, work.on_host])
            results = tuple(values.value(tensor) for tensor in body.results)
            self._known[key] = _BodyWork(rows, body, results)
        return self._known[key]


def _in_function(description: str, function: str) -> str:
    return f"{description} in function {function!r}" if function else description


def _argument(graph: OpGraph, tensor: int, number: np.ndarray | None = None) -> Argument:
    producer = int(graph.tensor_producer[tensor])
    node = graph.graph_def.node[producer]
    is_int = int(graph.tensor_dtypes[tensor]) in (types_pb2.DT_INT32, types_pb2.DT_INT64)
    if number is not None and is_int and graph.tensor_shapes[tensor] == ():
        return Argument((), constant=int(number))
    if node.op == "Identity":
        return _argument(graph, graph.input_tensors[producer][0])
    if node.op == "VarHandleOp":
        shape = node.attr["shape"].shape
        dimensions = None if shape.unknown_rank else tuple(dim.size for dim in shape.dim)
        return Argument(dimensions, node.attr["dtype"].type)
    element = graph.list_elements.get(tensor)
    if element is not None:
        return Argument(element.shape, element.dtype, element.value)
    return Argument(graph.tensor_shapes[tensor])


def _touched_bytes(graph: OpGraph) -> np.ndarray:
    """Computes what the kernel of each operation reads and writes: float64 [num_operations]."""
    sizes = tensor_sizes(graph).astype(np.float64)
    num_operations = graph.num_operations
    # Where there is nothing to count, the result is of integers.
    written = np.bincount(graph.tensor_producer, sizes, num_operations).astype(np.float64)
    by_value = ~graph.edge_is_handle
    consumers, read_sizes = graph.edge_consumer[by_value], sizes[graph.edge_tensor[by_value]]
    read = np.bincount(consumers, read_sizes, num_operations).astype(np.float64)

    picks = graph.has_type(PICKS)
    # Edges are sorted by consumer and input number: the first is what is picked from.
    first = np.r_[True, graph.edge_consumer[1:] != graph.edge_consumer[:-1]]
    source = first[: len(by_value)] & by_value & picks[graph.edge_consumer]
    read[graph.edge_consumer[source]] -= sizes[graph.edge_tensor[source]]
    read[picks] += written[picks]

    handles = np.bincount(graph.edge_consumer[graph.edge_is_handle], minlength=num_operations)
    updates = has_prefix(graph, _UPDATES) & (handles > 0)
    largest = np.zeros(num_operations)
    np.maximum.at(largest, consumers, read_sizes)
    return np.where(updates, read + 2 * handles * largest, read + written)


def _reduces_nothing(graph: OpGraph) -> np.ndarray:
    """Finds the reductions that leave all elements: TensorFlow hands their input on.

    The gradients of what may broadcast have them where the sizes are not known when they are made.

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


def _on_host(graph: OpGraph) -> np.ndarray:
    """Finds the operations that read and write nothing but int32: bool [num_operations]."""
    is_int32 = graph.tensor_dtypes == types_pb2.DT_INT32
    others = np.zeros(graph.num_operations, bool)
    others[graph.tensor_producer[~is_int32]] = True
    others[graph.edge_consumer[~is_int32[graph.edge_tensor]]] = True
    result: np.ndarray = ~others & (np.diff(graph.output_start) > 0)
    return result
