"""Data-flow analysis of variable updates, through conditionals, loops and function calls."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Iterable, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.functions import FunctionLibrary

__all__ = ["CALLS", "has_training_update"]

#: Suffixes of the types of operations that run functions of their graph.
CALLS = ("PartitionedCall", "While", "If", "Case", "ReduceDataset", "ScanDataset")

_OPTIMIZERS = re.compile(r"(Resource)?(Sparse)?Apply[A-Z]")
_ASSIGNMENTS = re.compile(r"Assign((Add|Sub)?(VariableOp)?)?$|(Resource)?Scatter[A-Z]")
_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_BRANCHES = ("If", "Case")
_PASS_THROUGH = re.compile(r"(Ref)?(Identity|Switch|Merge|Enter)$")
# Sources of data, and computations that imply data, because a step may train on constants.
_DATA = re.compile(r"Iterator.*GetNext|(Queue|Reader).*|.*(MatMul|Conv|Einsum|RNN|LSTM|GRU).*")
_READS_VARIABLE, _READS_DATA = 1, 2
_TRAINS = _READS_VARIABLE | _READS_DATA


def has_training_update(
    graph: tf.Graph,
    operations: Iterable[tf.Operation],
    trainable: Collection[str],
    fed: Collection[str],
) -> bool:
    """Says whether operations set a trainable variable to a value from both variables and data.

    Args:
        graph: the graph.
        operations: the operations that run, in topological order.
        trainable: names of the operations of trainable variables.
        fed: names of the fed operations.
    """
    updates = _Updates(graph, trainable)
    values: dict[str, _Value] = {}
    for operation in operations:
        inputs = [f"{each.op.name}:{each.value_index}" for each in operation.inputs]
        node = _Node(operation.name, operation.type, inputs, operation)
        if operation.type.startswith("Placeholder"):
            is_handle = operation.outputs[0].dtype == tf.resource
            reads = _READS_VARIABLE if is_handle else _READS_DATA
            values[operation.name] = _Value(reads, operation.name, is_handle)
        elif updates.follow(node, values):
            return True
        if operation.name in fed:
            values[operation.name] |= _Value(_READS_DATA)
    return False


@dataclasses.dataclass(frozen=True)
class _Value:
    """The analysis result for a tensor.

    Attributes:
        reads: flags of the sources that the tensor depends on.
        variable: the variable that is reached by following first inputs, if any.
        is_handle: whether the tensor is the handle of this variable.
    """

    reads: int = 0
    variable: str = ""
    is_handle: bool = False

    def __or__(self, other: _Value) -> _Value:
        return dataclasses.replace(self, reads=self.reads | other.reads)


_NONE = _Value()


@dataclasses.dataclass(frozen=True, eq=False)
class _Node:
    """An operation of a graph or of a function; inputs are "operation:index" or arguments."""

    name: str
    kind: str
    inputs: Sequence[str]
    origin: tf.Operation | tf.compat.v1.NodeDef


class _Function:
    """A function with its operations in topological order."""

    def __init__(self, function: function_pb2.FunctionDef) -> None:
        self.arguments = [each.name for each in function.signature.input_arg]
        self.results = [
            _convert_body_name(function.ret[a.name]) for a in function.signature.output_arg
        ]
        self._nodes = {node.name: node for node in function.node_def}

    @functools.cached_property
    def nodes(self) -> list[_Node]:
        seen: set[str] = set()
        ordered: list[_Node] = []
        waiting = [(name, False) for name in self._nodes]
        while waiting:
            name, is_ready = waiting.pop()
            node = self._nodes.get(name)
            if node is None:
                continue  # It is an argument.
            if is_ready:
                inputs = [_convert_body_name(each) for each in node.input if each[0] != "^"]
                ordered.append(_Node(name, node.op, inputs, node))
            elif name not in seen:
                seen.add(name)
                waiting.append((name, True))
                waiting += [(_operation(each), False) for each in node.input]
        return ordered


class _Updates:
    """The state of the analysis: the sources of all values that variables were set to."""

    def __init__(self, graph: tf.Graph, trainable: Collection[str]) -> None:
        self._graph, self._trainable = graph, trainable
        # Optimizers that are written in Python update slot variables and read them again.
        self._given: dict[str, int] = {}
        self._active: set[str] = set()
        self._followed: dict[tuple[str, tuple[_Value, ...]], list[_Value]] = {}

    @functools.cached_property
    def _library(self) -> tuple[FunctionLibrary, dict[str, _Function]]:
        graph_def = self._graph.as_graph_def()
        functions = {each.signature.name: _Function(each) for each in graph_def.library.function}
        return FunctionLibrary(graph_def), functions

    def follow(self, node: _Node, values: dict[str, _Value]) -> bool:
        """Analyzes the outputs of an operation; returns whether it trains a variable."""
        if _OPTIMIZERS.match(node.kind):
            return True
        inputs = [_value(each, values) for each in node.inputs]
        if node.kind.endswith(CALLS) or op_def_registry.get(node.kind) is None:
            return self._follow_call(node, inputs, values)
        first = inputs[0] if inputs else _NONE
        # A switch passes its first input through; the predicate is no part of the value.
        reads = self._reads(inputs[:1] if node.kind.endswith("Switch") else inputs)
        if _ASSIGNMENTS.match(node.kind):
            given = self._reads(inputs[1:])
            if first.variable in self._trainable and given == _TRAINS:
                return True
            self._record_assignment(first.variable, given)
        if node.kind in _VARIABLES:
            value = _Value(_READS_VARIABLE, node.name, True)
        else:
            is_handle = first.is_handle and bool(_PASS_THROUGH.match(node.kind))
            value = _Value(reads, first.variable, is_handle)
        values[node.name] = value | _Value(_READS_DATA if _DATA.match(node.kind) else 0)
        return False

    def _reads(self, inputs: Iterable[_Value]) -> int:
        reads = 0
        for each in inputs:
            reads |= each.reads | (self._given.get(each.variable, 0) if each.is_handle else 0)
        return reads

    def _record_assignment(self, variable: str, reads: int) -> None:
        given = self._given.get(variable, 0)
        if reads & ~given:
            self._given[variable] = given | reads
            self._followed.clear()

    def _follow_call(
        self, node: _Node, inputs: Sequence[_Value], values: dict[str, _Value]
    ) -> bool:
        library, functions = self._library
        origin = node.origin
        node_def = origin.node_def if isinstance(origin, tf.Operation) else origin
        kinds = {
            each.op for name in library.find_all_callees(node_def) for each in library.body(name)
        }
        if any(_OPTIMIZERS.match(kind) for kind in kinds):
            return True
        reads_data = any(_DATA.match(kind) for kind in kinds)
        reads = self._reads(inputs) | (_READS_DATA if reads_data else 0)
        values[node.name] = _Value(reads, inputs[0].variable if inputs else "")
        if not any(_ASSIGNMENTS.match(kind) for kind in kinds):
            return False
        given = list(inputs[1:] if node.kind.endswith(_BRANCHES) else inputs)
        if node.kind.endswith("Dataset"):
            # The function also takes elements of the data set, at unknown positions.
            given = [each if each.is_handle else each | _Value(_READS_DATA) for each in given]
        results: list[_Value] = []
        for name in _list_callees(node_def):
            while name in functions:
                found = self._follow_function(name, functions[name], given)
                if found is None:
                    return True
                results = [a | b for a, b in itertools.zip_longest(found, results, fillvalue=_NONE)]
                next_given = [a | b for a, b in zip(given, results, strict=False)]
                if not node.kind.endswith("While") or next_given == given:
                    break
                given = next_given
        if node.kind.endswith(CALLS):
            values |= {f"{node.name}:{i}": result for i, result in enumerate(results)}
        return False

    def _follow_function(
        self, name: str, function: _Function, given: Sequence[_Value]
    ) -> list[_Value] | None:
        """Analyzes the results of a function; None if it trains a variable."""
        missing = len(function.arguments) - len(given)
        arguments = [*[_Value(_READS_DATA)] * missing, *given[max(0, -missing) :]]
        key = (name, tuple(arguments))
        if name in self._active:  # It calls itself.
            return []
        if key not in self._followed:
            values = dict(zip(function.arguments, arguments, strict=True))
            self._active.add(name)
            try:
                if any(self.follow(node, values) for node in function.nodes):
                    return None
            finally:
                self._active.remove(name)
            self._followed[key] = [_value(each, values) for each in function.results]
        return self._followed[key]


def _value(tensor: str, values: dict[str, _Value]) -> _Value:
    return values.get(tensor) or values.get(_operation(tensor), _NONE)


def _list_callees(node: tf.compat.v1.NodeDef) -> list[str]:
    """Returns the names of the functions that an operation calls, except a loop condition."""
    names = [node.op]
    for key, attr in node.attr.items():
        if key != "cond":
            names += [attr.func.name, *(each.name for each in attr.list.func)]
    return names


def _convert_body_name(tensor: str) -> str:
    """Converts a tensor name in a function ("operation:output:index") to "operation:index"."""
    operation, _, output = tensor.partition(":")
    return f"{operation}:{output.rpartition(':')[2]}" if output else operation


def _operation(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]
