"""Flattened graphs: without loops and branches, so that one pass infers all shapes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2

from graph_passes.functions import FunctionLibrary
from graph_passes.tensor_list_shapes import LOOPS, add_list_shapes, parse_tensor_name

__all__ = ["FlattenedGraph", "Shape"]

#: The sizes of a tensor, -1 for an unknown size; None for unknown rank.
Shape = tuple[int, ...] | None

_CLASS = "_class"
_CALL = "StatefulPartitionedCall"
_MERGES = ("Merge", "RefMerge")
_ENTERS = ("Enter", "RefEnter")
_NEXT_ITERATIONS = ("NextIteration", "RefNextIteration")
_BRANCHES: Mapping[str, Sequence[str]] = {
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
_FORWARDS_HANDLES = ("Enter", "RefEnter", "Switch", "RefSwitch", "Identity", "TensorArrayGradV3")
# Operations that write tensors to a TensorArray or stack: the number of the written input, and
# whether its rows are the tensors.
_WRITES = {
    "TensorArrayWriteV3": (2, False),
    "TensorArrayScatterV3": (2, True),
    "StackPushV2": (1, False),
}
# Operations that return a subset of their input, whose size is the upper bound.
_SELECTIONS = ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "Where")
_READS = ("TensorArrayReadV3", "TensorArrayGatherV3", "StackPopV2")


@dataclasses.dataclass(frozen=True)
class _Agreement:
    """Two tensors that must have the same shape; only that of `tensor` is corrected."""

    tensor: tuple[str, int]
    other: tuple[str, int]


class FlattenedGraph:
    """A graph without loops and branches.

    A loop becomes one call of its body, a conditional a call of its first branch, and a call of a
    function by name a call that TensorFlow's shape inference follows. Operations keep their names
    and outputs.

    Attributes:
        graph_def: the flattened copy.
        list_values: for TensorLists of integers, tensors whose shape are these integers.
    """

    def __init__(self, graph_def: tf.compat.v1.GraphDef, *, take_defaults: bool = False) -> None:
        """Makes the copy; the graph is not changed.

        Args:
            graph_def: the graph.
            take_defaults: replaces placeholders with a default by their default, because the
                feeds are known.
        """
        self.graph_def = tf.compat.v1.GraphDef()
        self.graph_def.CopyFrom(graph_def)
        lists = add_list_shapes(self.graph_def)
        self._stacks, self.list_values = lists.rows, lists.values
        graph_def = self.graph_def
        self._functions = {f.signature.name: f.signature for f in graph_def.library.function}
        self._library = FunctionLibrary(graph_def)
        self._recursive = frozenset().union(*self._library.find_recursive())
        self._agreements: list[_Agreement] = []
        self._arrays: list[tuple[tuple[str, int], str, tuple[str, ...]]] = []
        self._selections: list[tuple[str, str, tuple[str, ...]]] = []
        self._conflicts: dict[str, set[int] | None] = {}
        if take_defaults:
            for node in graph_def.node:
                if node.op == "PlaceholderWithDefault":
                    node.op = "Identity"
                    node.attr["T"].type = node.attr.pop("dtype").type
                    node.attr.pop("shape", None)
        types = {node.name: node.op for node in graph_def.node}
        self._flatten(self.graph_def, types)
        for function in self.graph_def.library.function:
            self._flatten_body(function)
        for node in self.graph_def.node:
            # TensorFlow's importer looks up this attribute for every node, and raises and catches
            # two errors where it is missing. An empty one means the same and is faster.
            node.attr.get_or_create(_CLASS)

    def find_corrections(self, find_shape: Callable[[str, int], Shape]) -> dict[str, Shape]:
        """Finds tensors whose shapes in the original graph differ from those in this graph.

        A size is unknown if the second iteration of a loop or another branch changes it. Tensors
        read from a TensorArray have the shape of the tensors written to it.

        Args:
            find_shape: returns the inferred shape of a tensor, by operation name and port.

        Returns:
            The corrected shapes, by tensor name ("x:0").
        """
        found: dict[str, Shape] = {}
        for agreement in self._agreements:
            name, port = agreement.tensor
            inferred = find_shape(name, port)
            shape = self._merge_shapes(f"{name}:{port}", inferred, find_shape(*agreement.other))
            if shape != inferred:
                found[f"{name}:{port}"] = shape
        for name, shape in self._find_read_shapes(find_shape):
            if shape != find_shape(name, 0):
                found[f"{name}:0"] = shape
        for name, rows in self._stacks:
            inferred, counted = find_shape(name, 0), find_shape(*rows)
            if inferred and counted and inferred[0] < 0 <= counted[0]:
                found[f"{name}:0"] = (counted[0], *inferred[1:])
        for (name, port), shape in self._find_selection_bounds(find_shape):
            inferred = find_shape(name, port)
            if (
                inferred is not None
                and -1 in inferred
                and len(inferred) == len(shape)
                and shape != inferred
            ):
                found[f"{name}:{port}"] = shape
        return found

    def _merge_shapes(self, tensor: str, shape: Shape, other: Shape) -> Shape:
        """Merges two shapes of one tensor; sizes that have differed once stay unknown."""
        conflicts = self._conflicts.setdefault(tensor, set())
        if shape is None or other is None:
            return other if shape is None else shape
        if conflicts is None or len(shape) != len(other):
            self._conflicts[tensor] = None
            return None
        joined = []
        for number, (size, other_size) in enumerate(zip(shape, other, strict=True)):
            if min(size, other_size) >= 0 and size != other_size:
                conflicts.add(number)
            joined.append(-1 if number in conflicts else max(size, other_size))
        return tuple(joined)

    def _find_read_shapes(
        self, find_shape: Callable[[str, int], Shape]
    ) -> Iterator[tuple[str, Shape]]:
        """Lists the known shapes of tensors that are read from TensorArrays and stacks."""
        by_name = {node.name: node for node in self.graph_def.node} if self._arrays else {}
        elements: dict[tuple[str, int], Shape] = {}
        reads = []
        for array, op_type, (name, *inputs) in self._arrays:
            if op_type in _READS:
                reads.append((array, op_type, name, inputs))
                continue
            number, is_row = _WRITES[op_type]
            shape = find_shape(*parse_tensor_name(by_name[name].input[number]))
            if shape is not None and is_row:
                shape = shape[1:] if shape else None
            known = elements.get(array)
            elements[array] = shape if known is None else known
        for array, op_type, name, inputs in reads:
            shape, inferred = elements.get(array), find_shape(name, 0)
            if shape is None or (inferred is not None and -1 not in inferred):
                continue
            if op_type == "TensorArrayGatherV3":
                indices = find_shape(*parse_tensor_name(inputs[1]))
                shape = ((indices or (-1,))[0], *shape)
            if inferred is None or len(inferred) == len(shape):
                yield name, shape

    def _find_selection_bounds(
        self, find_shape: Callable[[str, int], Shape]
    ) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
        """Lists the upper bounds of the shapes of selections."""
        for name, op_type, inputs in self._selections:
            given = find_shape(*parse_tensor_name(inputs[0]))
            if given is None or -1 in given:
                continue
            if op_type == "Where":
                yield (name, 0), (math.prod(given), len(given))
            else:
                yield (name, 0), given
                if "Counts" in op_type:
                    yield (name, 2), given[:1]

    def _flatten(
        self, body: tf.compat.v1.GraphDef | function_pb2.FunctionDef, types: Mapping[str, str]
    ) -> None:
        is_function = isinstance(body, function_pb2.FunctionDef)
        nodes = body.node_def if is_function else body.node
        by_name = {node.name: node for node in nodes}
        added: list[tf.compat.v1.NodeDef] = []
        for node in by_name.values():
            if node.op in _ENTERS:
                # TensorFlow infers shapes only through Enters that are marked as constant, because
                # a loop may change others.
                node.attr["is_constant"].b = True
            elif node.op in _MERGES:
                entering = [
                    t
                    for t in node.input
                    if types.get(parse_tensor_name(t)[0]) not in _NEXT_ITERATIONS
                ]
                back = [
                    t for t in node.input if types.get(parse_tensor_name(t)[0]) in _NEXT_ITERATIONS
                ]
                if entering and back:
                    if not is_function:
                        agreement = _Agreement((node.name, 0), parse_tensor_name(back[0]))
                        self._agreements.append(agreement)
                    _set_inputs(node, entering)
                    node.attr["N"].i = len([t for t in entering if not t.startswith("^")])
            elif node.op in (*_WRITES, *_READS) and not is_function:
                array = self._find_array(node.input[0], by_name)
                self._arrays.append((array, node.op, (node.name, *node.input)))
            elif node.op in _SELECTIONS and not is_function:
                self._selections.append((node.name, node.op, tuple(node.input)))
            elif self._is_recursive(node):
                continue
            elif node.op in LOOPS:
                if not is_function:
                    data = [text for text in node.input if not text.startswith("^")]
                    for port, text in enumerate(data):
                        agreement = _Agreement((node.name, port), parse_tensor_name(text))
                        self._agreements.append(agreement)
                types_of = list(node.attr["T"].list.type)
                _make_call(node, node.attr["body"].func, types_of, types_of)
            elif node.op in _BRANCHES:
                added += self._flatten_branches(node, is_function=is_function)
            elif node.op in self._functions:
                self._flatten_call(node)
        nodes.extend(added)

    def _flatten_body(self, function: function_pb2.FunctionDef) -> None:
        """Flattens a function, whose inputs name outputs by their argument in the op definition."""
        names = {}
        for node in function.node_def:
            if node.op in self._functions and not self._is_recursive(node):
                for port, output in enumerate(self._functions[node.op].output_arg):
                    names[f"{node.name}:{output.name}:0"] = f"{node.name}:output:{port}"
        types = {node.name: node.op for node in function.node_def}
        self._flatten(function, types)
        if names:
            for node in function.node_def:
                _set_inputs(node, [names.get(text, text) for text in node.input])
            for key, text in function.ret.items():
                function.ret[key] = names.get(text, text)

    def _flatten_branches(
        self, node: tf.compat.v1.NodeDef, *, is_function: bool
    ) -> list[tf.compat.v1.NodeDef]:
        """Turns a conditional into a call of its first branch; returns calls of the others."""
        values = [node.attr[name] for name in _BRANCHES[node.op]]
        first, *others = [f for v in values for f in (v.list.func or [v.func])]
        in_types, out_types = (list(node.attr[name].list.type) for name in ("Tin", "Tout"))
        _set_inputs(node, node.input[1:])
        calls = []
        for number, function in enumerate([] if is_function else others):
            call = tf.compat.v1.NodeDef(name=f"{node.name}/tf_placer_branch_{number}")
            call.input.extend(node.input)
            _make_call(call, function, in_types, out_types)
            calls.append(call)
            for port in range(len(out_types)):
                self._agreements.append(_Agreement((node.name, port), (call.name, port)))
        _make_call(node, first, in_types, out_types)
        return calls

    def _flatten_call(self, node: tf.compat.v1.NodeDef) -> None:
        signature = self._functions[node.op]
        arguments = [*signature.input_arg, *signature.output_arg]
        if any(arg.number_attr or arg.type_list_attr for arg in arguments):
            return
        types = [arg.type or node.attr[arg.type_attr].type for arg in arguments]
        function = attr_value_pb2.NameAttrList(name=node.op)
        for name in [attr.name for attr in signature.attr]:
            if name in node.attr:
                function.attr[name].CopyFrom(node.attr[name])
        num_inputs = len(signature.input_arg)
        _make_call(node, function, types[:num_inputs], types[num_inputs:])

    def _is_recursive(self, node: tf.compat.v1.NodeDef) -> bool:
        """Returns whether a call runs a recursive function, whose flattening would not end."""
        return bool(self._recursive) and not self._recursive.isdisjoint(
            self._library.find_all_callees(node)
        )

    def _find_array(
        self, text: str, by_name: Mapping[str, tf.compat.v1.NodeDef]
    ) -> tuple[str, int]:
        """Finds the operation that creates a TensorArray, also from the handle of its gradient."""
        name, port = parse_tensor_name(text)
        while name in by_name and by_name[name].op in _FORWARDS_HANDLES:
            name, port = parse_tensor_name(by_name[name].input[0])
        return name, port


def _set_inputs(node: tf.compat.v1.NodeDef, inputs: Sequence[str]) -> None:
    inputs = list(inputs)
    del node.input[:]
    node.input.extend(inputs)


def _make_call(
    node: tf.compat.v1.NodeDef, function: Any, in_types: Sequence[int], out_types: Sequence[int]
) -> None:
    """Turns an operation into a call of a function."""
    called = attr_value_pb2.NameAttrList()
    called.CopyFrom(function)
    node.op = _CALL
    for name in list(node.attr):
        del node.attr[name]
    node.attr["Tin"].list.type.extend(in_types)
    node.attr["Tout"].list.type.extend(out_types)
    node.attr["f"].func.CopyFrom(called)
