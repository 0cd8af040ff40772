"""Whether what a script runs is a step of its training.

A training step changes trainable variables by what it computes from their values and from data, or
gives back their gradients, for the script to do so. That tells it from initialisers, restored
checkpoints, counters, copies of variables, and metrics.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from graph_passes.functions import FunctionLibrary

__all__ = ["function_trains", "operations_behind", "step_trains"]

_OPTIMIZERS = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")
_ASSIGNMENTS = re.compile(r"Assign((Add|Sub)?(VariableOp)?)?$|(Resource)?Scatter[A-Z]")
_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_CALLS = ("PartitionedCall", "While", "If", "Case", "ReduceDataset", "ScanDataset")
# Where data comes from, or what is computed of it: a step may train on constants.
_DATA = re.compile(r"Iterator.*GetNext|(Queue|Reader).*|.*(MatMul|Conv|Einsum|RNN|LSTM|GRU).*")
# Scopes in which tf.GradientTape and tf.gradients make their operations.
_GRADIENTS = re.compile(r"(.*/)?gradient(s|_tape)(_\d+)?/")
_READS_VARIABLE, _READS_DATA = 1, 2


def step_trains(graph: tf.Graph, fetches: Iterable[str], feeds: Iterable[str]) -> bool:
    """Says whether a run of a session is a training step.

    Args:
        graph: the graph.
        fetches: names of the operations and tensors that the session runs.
        feeds: names of the tensors that it is fed.
    """
    variables = graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)
    trainable = {variable.op.name for variable in variables}
    fetched = [graph.as_graph_element(name) for name in fetches]
    ends = [each if isinstance(each, tf.Operation) else each.op for each in fetched]
    given = [each for each in fetched if isinstance(each, tf.Tensor)]
    fed = {_operation(name) for name in feeds}
    return _trains(graph, ends, fed, trainable) or _gives_gradients(given, variables)


def operations_behind(graph: tf.Graph, fetches: Iterable[str]) -> set[str]:
    """Names all operations that fetches need, and those of the fetches."""
    fetched = [graph.get_operation_by_name(_operation(name)) for name in fetches]
    return {operation.name for operation in _behind_what_they_need(fetched)}


def function_trains(graph: Any) -> bool:
    """Says whether a traced function is a training step.

    Args:
        graph: the FuncGraph of the function.
    """
    variables = graph.trainable_variables
    handles = {id(variable.handle) for variable in variables}
    trainable = {inner.op.name for outer, inner in graph.captures if id(outer) in handles}
    # Variables that are arguments.
    captured = {id(inner) for _, inner in graph.captures}
    trainable |= {
        each.op.name
        for each in graph.inputs
        if each.dtype == tf.resource and id(each) not in captured
    }
    ends = [*graph.control_outputs, *(tensor.op for tensor in graph.outputs)]
    return _trains(graph, ends, set(), trainable) or _gives_gradients(graph.outputs, variables)


def _gives_gradients(tensors: Iterable[tf.Tensor], variables: Sequence[Any]) -> bool:
    """Says whether one of these is the gradient of a variable, or of all of them in one vector."""
    shapes = [variable.shape for variable in variables]
    in_one = tf.TensorShape([sum(shape.num_elements() or 0 for shape in shapes)])
    # How long a vector is may not be known: tf.dynamic_stitch does not tell.
    likely = [
        each
        for each in tensors
        if each.shape.rank and (each.shape in shapes or in_one.is_compatible_with(each.shape))
    ]
    if not (variables and likely):
        return False
    behind = list(_behind_what_they_need(each.op for each in likely))
    if any(_GRADIENTS.match(each.name) for each in behind):
        return True
    calls = [each.node_def for each in behind if each.type.endswith(_CALLS)]
    if not calls:  # To write down the graph takes time.
        return False
    library = FunctionLibrary(likely[0].graph.as_graph_def())
    called = {name for call in calls for name in library.run_by(call)}
    return any(_GRADIENTS.match(node.name) for name in called for node in library.body(name))


def _trains(
    graph: tf.Graph, ends: Sequence[tf.Operation], fed: Collection[str], trainable: Collection[str]
) -> bool:
    library: FunctionLibrary | None = None
    reads: dict[str, int] = {}
    for operation in _behind_what_they_need(ends):
        inputs = list(operation.inputs)
        kind = operation.type
        if _OPTIMIZERS.match(kind):
            return True
        if kind.endswith(_CALLS):
            library = library or FunctionLibrary(graph.as_graph_def())
            if _calls_training(library, operation):
                return True
        if _ASSIGNMENTS.match(kind):
            variable, read = _variable(operation), 0
            for tensor in inputs[1:]:
                read |= reads.get(tensor.op.name, 0)
            if variable in trainable and read == _READS_VARIABLE | _READS_DATA:
                return True
            # Optimisers that are written in Python read their slots again behind this.
            reads[variable] = reads.get(variable, 0) | read
        read = _reads_itself(operation, fed)
        for tensor in inputs:
            read |= reads.get(tensor.op.name, 0)
        reads[operation.name] = read
    return False


def _reads_itself(operation: tf.Operation, fed: Collection[str]) -> int:
    kind = operation.type
    if kind in _VARIABLES:
        return _READS_VARIABLE
    if kind.startswith("Placeholder"):
        is_handle = operation.outputs[0].dtype == tf.resource
        return _READS_VARIABLE if is_handle else _READS_DATA
    return _READS_DATA if operation.name in fed or _DATA.match(kind) else 0


def _behind_what_they_need(ends: Iterable[tf.Operation]) -> Iterator[tf.Operation]:
    """Yields all operations that these need, each behind its inputs, but for those of loops."""
    seen: set[str] = set()
    waiting = [(operation, False) for operation in ends]
    while waiting:
        operation, is_ready = waiting.pop()
        if is_ready:
            yield operation
        elif operation.name not in seen:
            seen.add(operation.name)
            waiting.append((operation, True))
            waiting += [(tensor.op, False) for tensor in operation.inputs]
            waiting += [(before, False) for before in operation.control_inputs]


def _variable(operation: tf.Operation) -> str:
    """Finds the name of the variable that an operation assigns to."""
    while len(operation.inputs) and operation.type not in _VARIABLES:
        operation = operation.inputs[0].op
    return str(operation.name)


def _calls_training(library: FunctionLibrary, operation: tf.Operation) -> bool:
    """Says whether an operation calls what updates variables by what it computes."""
    called = library.run_by(operation.node_def)
    kinds = {node.op for name in called for node in library.body(name)}
    if any(_OPTIMIZERS.match(kind) for kind in kinds):
        return True
    assigns = any(_ASSIGNMENTS.match(kind) for kind in kinds)
    return assigns and any(_DATA.match(kind) for kind in kinds)


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
