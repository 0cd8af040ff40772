"""Bodies of functions as separate graphs, with the shapes of a call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2, op_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.errors import GraphError
from graph_passes.functions import FunctionLibrary
from graph_passes.op_graph import OpGraph

__all__ = ["Argument", "Body", "FunctionBodies"]

# Operations that read an element of a TensorList, and the name of the output for it.
_LIST_READS = {"TensorListPopBack": "tensor", "TensorListGetItem": "item"}


@dataclasses.dataclass(frozen=True)
class Argument:
    """The known properties of an argument of a function call.

    Attributes:
        shape: the shape, -1 for an unknown dimension; None for unknown rank. For a resource, the
            shape of its variable; for a TensorList, that of its elements.
        content_dtype: the DataType of the variable of a resource, or of the elements of a
            TensorList; None for other arguments.
        value: the value of every element of a TensorList of integers, if known.
        constant: the value of an integer argument, if known.
    """

    shape: tuple[int, ...] | None
    content_dtype: int | None = None
    value: tuple[int, ...] | None = None
    constant: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Body:
    """The graph of a function.

    Attributes:
        graph: the graph, with the operations that a call runs marked as `needed`.
        arguments: the numbers of the tensors for the arguments.
        results: the numbers of the returned tensors.
    """

    graph: OpGraph
    arguments: tuple[int, ...]
    results: tuple[int, ...]


class FunctionBodies:
    """The bodies of the functions of a graph."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef) -> None:
        """Indexes the function library of a graph."""
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._library = FunctionLibrary(graph_def)

    def __contains__(self, name: str) -> bool:
        """Returns whether the library has a function."""
        return name in self._functions

    def body(self, name: str, arguments: Sequence[Argument]) -> Body:
        """Builds the graph of a function, with a placeholder or a variable for each argument.

        Args:
            name: the name of the function.
            arguments: the arguments of the call.

        Returns:
            The graph, with its arguments and results.

        Raises:
            GraphError: there is no such function, or TensorFlow rejects its body as a graph.
        """
        if name not in self._functions:
            raise GraphError(f"the graph has no function {name!r}")
        function = self._functions[name]
        graph_def = tf.compat.v1.GraphDef(versions=tf.Graph().as_graph_def().versions)
        for called in sorted(
            {n for node in function.node_def for n in self._library.find_all_callees(node)}
        ):
            if called in self._functions:
                graph_def.library.function.add().CopyFrom(self._functions[called])
        for arg, argument in zip(function.signature.input_arg, arguments, strict=True):
            graph_def.node.extend(_make_argument_nodes(arg, argument))
        tensors = self.map_tensor_names(function)
        values = {
            arg.name: argument.value
            for arg, argument in zip(function.signature.input_arg, arguments, strict=True)
            if argument.value is not None
        }
        for node in function.node_def:
            if node.op in _LIST_READS and node.input[0] in values:
                value = _make_constant(
                    f"{node.name}/value", values[node.input[0]], node.attr["element_dtype"].type
                )
                graph_def.node.append(value)
                tensors[f"{node.name}:{_LIST_READS[node.op]}:0"] = f"{value.name}:0"
            copied = graph_def.node.add()
            copied.CopyFrom(node)
            copied.attr.pop("_class", None)  # It may name operations outside.
            del copied.input[:]
            copied.input.extend(tensors.get(text, text) for text in node.input)
        returned = [function.ret[arg.name] for arg in function.signature.output_arg]
        results = [tensors.get(text, text) for text in returned]
        stateful = [node.name for node in function.node_def if _is_stateful(node)]
        graph = OpGraph.from_graph_def(
            graph_def, [*results, *sorted(function.control_ret.values()), *stateful]
        )
        return Body(
            graph,
            tuple(graph.tensor_index(arg.name) for arg in function.signature.input_arg),
            tuple(graph.tensor_index(text) for text in results),
        )

    def find_invariant_arguments(self, name: str) -> list[bool]:
        """Finds the arguments of a loop's body that it returns unchanged at the same position."""
        function = self._functions.get(name)
        if function is None:
            return []
        identities = {
            f"{node.name}:output:0": node.input[0]
            for node in function.node_def
            if node.op == "Identity" and node.input
        }
        found = []
        for arg, result in zip(
            function.signature.input_arg, function.signature.output_arg, strict=False
        ):
            text = function.ret[result.name]
            while text in identities:
                text = identities.pop(text)
            found.append(text == arg.name)
        return found

    def map_tensor_names(self, function: function_pb2.FunctionDef) -> dict[str, str]:
        """Maps names of tensors in functions, "operation:output:number", to "operation:number"."""
        names = {}
        for node in function.node_def:
            number = 0
            for output, count in self._list_outputs(node):
                for i in range(count):
                    names[f"{node.name}:{output}:{i}"] = f"{node.name}:{number}"
                    number += 1
        return names

    def _list_outputs(self, node: tf.compat.v1.NodeDef) -> Iterable[tuple[str, int]]:
        """Lists the name and length of each output of an operation."""
        if node.op in self._functions:
            return [(arg.name, 1) for arg in self._functions[node.op].signature.output_arg]
        definition = op_def_registry.get(node.op)
        if definition is None:
            return []  # Reading the graph raises an error about the unknown type.
        return [(arg.name, _length(arg, node)) for arg in definition.output_arg]


def _length(arg: op_def_pb2.OpDef.ArgDef, node: tf.compat.v1.NodeDef) -> int:
    if arg.number_attr:
        return int(node.attr[arg.number_attr].i)
    if arg.type_list_attr:
        return len(node.attr[arg.type_list_attr].list.type)
    return 1


def _make_argument_nodes(
    arg: op_def_pb2.OpDef.ArgDef, argument: Argument
) -> list[tf.compat.v1.NodeDef]:
    if argument.constant is not None:
        return [_make_constant(arg.name, argument.constant, arg.type)]
    node = tf.compat.v1.NodeDef(name=arg.name, op="Placeholder")
    dtype = argument.content_dtype
    if arg.type == types_pb2.DT_VARIANT and dtype is not None and argument.shape is not None:
        # TensorFlow infers the shapes of elements from the creation of the list.
        shape = _make_constant(f"{arg.name}/shape", argument.shape, types_pb2.DT_INT32)
        length = _make_constant(f"{arg.name}/length", 0, types_pb2.DT_INT32)
        node.op = "TensorListReserve"
        node.input.extend([shape.name, length.name])
        node.attr["element_dtype"].type = dtype
        node.attr["shape_type"].type = types_pb2.DT_INT32
        return [shape, length, node]
    node.attr["dtype"].type = arg.type
    if arg.type == types_pb2.DT_RESOURCE:
        if dtype is None:
            return [node]
        # TensorFlow infers the shapes of reads from the variable.
        node.op = "VarHandleOp"
        node.attr["dtype"].type = dtype
    node.attr["shape"].shape.CopyFrom(tf.TensorShape(_to_dimensions(argument.shape)).as_proto())
    return [node]


def _make_constant(name: str, value: int | tuple[int, ...], dtype: int) -> tf.compat.v1.NodeDef:
    node = tf.compat.v1.NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.dtypes.as_dtype(dtype)))
    return node


def _to_dimensions(shape: tuple[int, ...] | None) -> list[int | None] | None:
    return None if shape is None else [None if size < 0 else size for size in shape]


def _is_stateful(node: tf.compat.v1.NodeDef) -> bool:
    definition = op_def_registry.get(node.op)
    return definition is None or definition.is_stateful
