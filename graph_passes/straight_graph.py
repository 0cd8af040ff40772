"""A graph without loops and branches, so that shapes can be inferred from its start to its end."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2

from graph_passes.functions import FunctionLibrary
from graph_passes.list_elements import LOOPS, producer, tell_list_elements

__all__ = ["Shape", "StraightGraph"]

#: Sizes of a tensor, -1 for an unknown one; None for an unknown number of dimensions.
Shape = tuple[int, ...] | None

_CLASS = "_class"
_CALL = "StatefulPartitionedCall"
_MERGES = ("Merge", "RefMerge")
_ENTERS = ("Enter", "RefEnter")
_BACK = ("NextIteration", "RefNextIteration")
_BRANCHES: Mapping[str, Sequence[str]] = {
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
    "Case": ("branches",),
    "StatelessCase": ("branches",),
}
_HANDS_ON_HANDLES = ("Enter", "RefEnter", "Switch", "RefSwitch", "Identity", "TensorArrayGradV3")
# What puts tensors into a TensorArray or on a stack: which input, and whether its rows are they.
_PUTS = {
    "TensorArrayWriteV3": (2, False),
    "TensorArrayScatterV3": (2, True),
    "StackPushV2": (1, False),
}
# What hands out some of what it is given: at most all of it.
_SELECTS = ("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "Where")
_TAKES = ("TensorArrayReadV3", "TensorArrayGatherV3", "StackPopV2")


@dataclasses.dataclass(frozen=True)
class _Agreement:
    """Two tensors that must have one shape: what is inferred of the first, and what else it is."""

    tensor: tuple[str, int]
    other: tuple[str, int]


class StraightGraph:
    """A graph without loops and branches.

    A loop is run through once, a conditional takes its first branch, and a call of a function by
    its name is one that TensorFlow looks into. Operations keep their names and outputs.

    Attributes:
        graph_def: the changed copy.
        list_values: for lists of whole numbers, tensors whose shape are the numbers in them.
    """

    def __init__(self, graph_def: tf.compat.v1.GraphDef, *, take_defaults: bool = False) -> None:
        """Makes the copy; the graph is not changed.

        Args:
            graph_def: the graph.
            take_defaults: whether placeholders with a default are that, because all that is fed is
                known and read instead.
        """
        self.graph_def = tf.compat.v1.GraphDef()
        self.graph_def.CopyFrom(graph_def)
        lists = tell_list_elements(self.graph_def)
        self._stacks, self.list_values = lists.rows, lists.values
        graph_def = self.graph_def
        self._functions = {f.signature.name: f.signature for f in graph_def.library.function}
        self._library = FunctionLibrary(graph_def)
        self._recursive = frozenset().union(*self._library.recursive())
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
        self._straighten(self.graph_def, types)
        for function in self.graph_def.library.function:
            self._straighten_body(function)
        for node in self.graph_def.node:
            # For every node TensorFlow's importer asks for the attribute, and makes, raises and
            # catches two errors where there is none. One without a value says the same in less
            # time.
            node.attr.get_or_create(_CLASS)

    def corrections(self, shape_of: Callable[[str, int], Shape]) -> dict[str, Shape]:
        """Finds tensors whose shapes have to be others than what is inferred of this graph.

        A size that the second iteration of a loop or another branch changes is unknown; what is
        taken from a TensorArray is what was put there.

        Args:
            shape_of: what is inferred of a tensor, given as the name of an operation and a port.

        Returns:
            By tensor name ("x:0") its shape.
        """
        found: dict[str, Shape] = {}
        for agreement in self._agreements:
            name, port = agreement.tensor
            now = shape_of(name, port)
            shape = self._agreed(f"{name}:{port}", now, shape_of(*agreement.other))
            if shape != now:
                found[f"{name}:{port}"] = shape
        for name, shape in self._taken(shape_of):
            if shape != shape_of(name, 0):
                found[f"{name}:0"] = shape
        for name, rows in self._stacks:
            now, counted = shape_of(name, 0), shape_of(*rows)
            if now and counted and now[0] < 0 <= counted[0]:
                found[f"{name}:0"] = (counted[0], *now[1:])
        for (name, port), shape in self._selected(shape_of):
            now = shape_of(name, port)
            if now is not None and -1 in now and len(now) == len(shape) and shape != now:
                found[f"{name}:{port}"] = shape
        return found

    def _agreed(self, tensor: str, shape: Shape, other: Shape) -> Shape:
        """Joins two shapes of one tensor; what has differed once stays unknown."""
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

    def _taken(self, shape_of: Callable[[str, int], Shape]) -> Iterator[tuple[str, Shape]]:
        """Lists what is known of the tensors that are taken from TensorArrays."""
        by_name = {node.name: node for node in self.graph_def.node} if self._arrays else {}
        elements: dict[tuple[str, int], Shape] = {}
        takes = []
        for array, op_type, (name, *inputs) in self._arrays:
            if op_type in _TAKES:
                takes.append((array, op_type, name, inputs))
                continue
            number, is_row = _PUTS[op_type]
            shape = shape_of(*producer(by_name[name].input[number]))
            if shape is not None and is_row:
                shape = shape[1:] if shape else None
            known = elements.get(array)
            elements[array] = shape if known is None else known
        for array, op_type, name, inputs in takes:
            shape, now = elements.get(array), shape_of(name, 0)
            if shape is None or (now is not None and -1 not in now):
                continue
            if op_type == "TensorArrayGatherV3":
                indices = shape_of(*producer(inputs[1]))
                shape = ((indices or (-1,))[0], *shape)
            if now is None or len(now) == len(shape):
                yield name, shape

    def _selected(
        self, shape_of: Callable[[str, int], Shape]
    ) -> Iterator[tuple[tuple[str, int], tuple[int, ...]]]:
        """Lists how large the results of selections can be."""
        for name, op_type, inputs in self._selections:
            given = shape_of(*producer(inputs[0]))
            if given is None or -1 in given:
                continue
            if op_type == "Where":
                yield (name, 0), (math.prod(given), len(given))
            else:
                yield (name, 0), given
                if "Counts" in op_type:
                    yield (name, 2), given[:1]

    def _straighten(
        self, body: tf.compat.v1.GraphDef | function_pb2.FunctionDef, types: Mapping[str, str]
    ) -> None:
        is_body = isinstance(body, function_pb2.FunctionDef)
        nodes = body.node_def if is_body else body.node
        by_name = {node.name: node for node in nodes}
        added: list[tf.compat.v1.NodeDef] = []
        for node in by_name.values():
            if node.op in _ENTERS:
                # Of others TensorFlow infers nothing: a loop may change them.
                node.attr["is_constant"].b = True
            elif node.op in _MERGES:
                entering = [t for t in node.input if types.get(producer(t)[0]) not in _BACK]
                back = [t for t in node.input if types.get(producer(t)[0]) in _BACK]
                if entering and back:
                    if not is_body:
                        agreement = _Agreement((node.name, 0), producer(back[0]))
                        self._agreements.append(agreement)
                    _set_inputs(node, entering)
                    node.attr["N"].i = len([t for t in entering if not t.startswith("^")])
            elif node.op in (*_PUTS, *_TAKES) and not is_body:
                array = self._array_behind(node.input[0], by_name)
                self._arrays.append((array, node.op, (node.name, *node.input)))
            elif node.op in _SELECTS and not is_body:
                self._selections.append((node.name, node.op, tuple(node.input)))
            elif self._is_recursive(node):
                continue
            elif node.op in LOOPS:
                if not is_body:
                    data = [text for text in node.input if not text.startswith("^")]
                    for port, text in enumerate(data):
                        agreement = _Agreement((node.name, port), producer(text))
                        self._agreements.append(agreement)
                types_of = list(node.attr["T"].list.type)
                _make_call(node, node.attr["body"].func, types_of, types_of)
            elif node.op in _BRANCHES:
                added += self._straighten_branches(node, is_body=is_body)
            elif node.op in self._functions:
                self._straighten_call(node)
        nodes.extend(added)

    def _straighten_body(self, function: function_pb2.FunctionDef) -> None:
        """Straightens a function, where outputs are known by their names in an operation's type."""
        names = {}
        for node in function.node_def:
            if node.op in self._functions and not self._is_recursive(node):
                for port, output in enumerate(self._functions[node.op].output_arg):
                    names[f"{node.name}:{output.name}:0"] = f"{node.name}:output:{port}"
        types = {node.name: node.op for node in function.node_def}
        self._straighten(function, types)
        if names:
            for node in function.node_def:
                _set_inputs(node, [names.get(text, text) for text in node.input])
            for key, text in function.ret.items():
                function.ret[key] = names.get(text, text)

    def _straighten_branches(
        self, node: tf.compat.v1.NodeDef, *, is_body: bool
    ) -> list[tf.compat.v1.NodeDef]:
        """Makes a conditional a call of its first branch; returns calls of the others."""
        values = [node.attr[name] for name in _BRANCHES[node.op]]
        first, *others = [f for v in values for f in (v.list.func or [v.func])]
        in_types, out_types = (list(node.attr[name].list.type) for name in ("Tin", "Tout"))
        _set_inputs(node, node.input[1:])
        calls = []
        for number, function in enumerate([] if is_body else others):
            call = tf.compat.v1.NodeDef(name=f"{node.name}/tf_placer_branch_{number}")
            call.input.extend(node.input)
            _make_call(call, function, in_types, out_types)
            calls.append(call)
            for port in range(len(out_types)):
                self._agreements.append(_Agreement((node.name, port), (call.name, port)))
        _make_call(node, first, in_types, out_types)
        return calls

    def _straighten_call(self, node: tf.compat.v1.NodeDef) -> None:
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
        """Says whether a call runs a function that runs itself, which nobody gets to the end of."""
        return bool(self._recursive) and not self._recursive.isdisjoint(self._library.run_by(node))

    def _array_behind(
        self, text: str, by_name: Mapping[str, tf.compat.v1.NodeDef]
    ) -> tuple[str, int]:
        """Follows the handle of a TensorArray, or of its gradient's, to where it is made."""
        name, port = producer(text)
        while name in by_name and by_name[name].op in _HANDS_ON_HANDLES:
            name, port = producer(by_name[name].input[0])
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
