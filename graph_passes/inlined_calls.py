"""Inlining of function calls, and writing devices back into the functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from graph_passes.function_body import FunctionBodies
from graph_passes.nested_runs import Nested, run_nested

__all__ = ["Call", "InlinedGraph", "inline_calls", "put_devices"]

_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
# Attributes of functions that TensorFlow does not inline, compiles, or replaces by another one.
_NOT_INLINED = ("_noinline", "_XlaMustCompile", "api_implements")
_COLOCATION, _LOCATION = "_class", b"loc:@"


@dataclasses.dataclass(frozen=True)
class Call:
    """An inlined call.

    Attributes:
        function: the name of the function.
        names: the names in the inlined graph of the operations of the body, by their names in the
            body; without inlined calls.
        calls: the inlined calls of the body, by their names in the body.
    """

    function: str
    names: Mapping[str, str]
    calls: Mapping[str, Call]


@dataclasses.dataclass(frozen=True, eq=False)
class InlinedGraph:
    """The part of a graph that a step needs, with calls inlined.

    Attributes:
        graph_def: the graph; the name of an inlined operation is the names of the calls and its
            own, joined by "/". Operations that nothing needs any more are left out.
        fetches: the fetches of the step: results of calls are replaced by the tensors that compute
            them, and side effects of calls are added if the other fetches do not run them.
        calls: the inlined calls, by the name of the calling operation.
        ends: the operations that have run when a given fetch is complete, by its name: the one that
            computes it, and the side effects of the calls that it needs.
    """

    graph_def: tf.compat.v1.GraphDef
    fetches: tuple[str, ...]
    calls: Mapping[str, Call]
    ends: Mapping[str, tuple[str, ...]]


def inline_calls(
    graph_def: tf.compat.v1.GraphDef,
    fetches: Sequence[str],
    feeds: Iterable[str] = (),
    others: Iterable[str] = (),
) -> InlinedGraph:
    """Inlines function calls, also nested ones.

    The values of a step stay the same, and so does the order of its side effects: operations that
    wait for a call wait for all side effects of the call. Loops and conditionals are not inlined,
    nor are calls with a device, and calls of functions that are recursive, whose types depend on
    the call, or that TensorFlow compiles, replaces, or is told not to inline.

    Args:
        graph_def: the graph.
        fetches: the names of the operations ("train") and tensors ("loss:0") that the step fetches.
        feeds: the names of the fed tensors.
        others: further operations to keep, with their inputs.

    Returns:
        The inlined graph.
    """
    inliner = _Inliner(graph_def)
    step = _find_needed(graph_def.node, fetches, feeds)
    nodes = _find_needed(graph_def.node, [*fetches, *others], feeds)
    own_nodes = [node for node in graph_def.node if node.name in nodes]
    calls = run_nested(inliner.add_body(own_nodes, step))
    flat = inliner.finish(graph_def)
    own = [inliner.resolve(name) if ":" in name else name for name in fetches]
    runs = _find_needed(flat.node, own, feeds)
    ends = {}
    for name, result in zip(fetches, own, strict=True):
        needed = _find_needed(graph_def.node, [name], feeds)
        # The order of nodes in a function body is arbitrary.
        effects = sorted(
            end for call in needed & calls.keys() for end in inliner.list_effects(call)
        )
        ends[name] = (_operation_name(result), *effects)
    more = {end for _, *effects in ends.values() for end in effects} - runs
    return InlinedGraph(flat, (*dict.fromkeys(own), *sorted(more)), calls, ends)


def put_devices(
    graph_def: tf.compat.v1.GraphDef, calls: Mapping[str, Call], assignment: Mapping[str, str]
) -> tf.compat.v1.GraphDef:
    """Writes the devices of operations into a graph and the functions that it calls.

    A function with different devices at several calls gets a copy for every set of devices but the
    first, which is written into the function itself and so also applies to its other callers.
    Operations keep their original device.

    Args:
        graph_def: the original graph.
        calls: the calls of its `InlinedGraph`.
        assignment: the device of each operation, by its name in the `InlinedGraph`.

    Returns:
        A copy of the graph with devices.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    writer = _Writer(result, assignment)
    for node in result.node:
        if node.name in calls:
            _set_function(node, run_nested(writer.write(calls[node.name])))
        elif not node.device:
            node.device = assignment.get(node.name, "")
    return result


class _Inliner:
    """Builds the nodes of the inlined graph."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef) -> None:
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self._bodies = FunctionBodies(graph_def)
        self._nodes: list[tf.compat.v1.NodeDef] = []
        # Maps arguments and call results to the tensors that produce them.
        self._aliases: dict[str, str] = {}
        # The side effects of each call, as names of operations or calls, and its control inputs.
        self._effects: dict[str, list[str]] = {}
        self._waits: dict[str, list[str]] = {}

    def add_body(
        self,
        nodes: Sequence[tf.compat.v1.NodeDef],
        inlined: Iterable[str],
        scope: str = "",
        waits: Sequence[str] = (),
        stack: tuple[str, ...] = (),
    ) -> Nested[dict[str, Call]]:
        """Adds operations, and the bodies of functions in place of calls.

        Args:
            nodes: the operations, with inputs named as in graphs, within the body.
            inlined: the names of the operations that may be inlined.
            scope: the prefix of names in the inlined graph.
            waits: the control inputs of the whole body.
            stack: the enclosing functions.

        Returns:
            The inlined calls.
        """
        names = {node.name for node in nodes}
        prefixes = {name[:i] for name in names for i, letter in enumerate(name) if letter == "/"}
        may_be_called = set(inlined)
        calls = {}
        for node in nodes:
            flat = tf.compat.v1.NodeDef()
            flat.CopyFrom(node)
            flat.ClearField("experimental_debug_info")
            flat.name = scope + node.name
            del flat.input[:]
            flat.input.extend(_add_scope(text, scope) for text in node.input)
            if not any(_operation_name(text) in names for text in node.input):
                flat.input.extend(waits)
            function = self._find_inlinable(node, stack) if node.name in may_be_called else None
            if function is None:
                _rename_colocated(flat, scope, names)
                self._nodes.append(flat)
                continue
            inner = node.name
            while inner in prefixes or (inner != node.name and inner in names):
                inner += "_call"
            calls[node.name] = yield self._add_call(flat, function, f"{scope}{inner}/", stack)
        return calls

    def _add_call(
        self,
        node: tf.compat.v1.NodeDef,
        function: function_pb2.FunctionDef,
        scope: str,
        stack: tuple[str, ...],
    ) -> Nested[Call]:
        given = [text for text in node.input if not text.startswith("^")]
        waits = [text for text in node.input if text.startswith("^")]
        for arg, text in zip(function.signature.input_arg, given, strict=True):
            self._aliases[f"{scope}{arg.name}:0"] = _add_port(text)
        tensors = self._bodies.map_tensor_names(function)
        for i, arg in enumerate(function.signature.output_arg):
            made = function.ret[arg.name]
            self._aliases[f"{node.name}:{i}"] = _add_port(scope + tensors.get(made, made))
        body = []
        for each in function.node_def:
            copied = tf.compat.v1.NodeDef()
            copied.CopyFrom(each)
            del copied.input[:]
            copied.input.extend(tensors.get(text, text) for text in each.input)
            body.append(copied)
        names = [each.name for each in body]
        stack = (*stack, function.signature.name)
        calls = yield self.add_body(body, names, scope, waits, stack)
        # A map of Protocol Buffers has another order in every process.
        effects = sorted(function.control_ret.values())
        self._effects[node.name] = [scope + name for name in effects]
        self._waits[node.name] = waits
        return Call(
            function.signature.name,
            {name: scope + name for name in names if name not in calls},
            calls,
        )

    def _find_inlinable(
        self, node: tf.compat.v1.NodeDef, stack: tuple[str, ...]
    ) -> function_pb2.FunctionDef | None:
        """Finds the function of a call that can be inlined; None for other operations."""
        name = node.attr["f"].func.name if node.op in _CALLS else node.op
        function = self._functions.get(name)
        if function is None or name in stack or node.device or function.signature.attr:
            return None
        args = [*function.signature.input_arg, *function.signature.output_arg]
        if any(arg.number_attr or arg.type_list_attr or arg.type_attr for arg in args):
            return None
        is_plain = not node.attr["executor_type"].s if "executor_type" in node.attr else True
        is_excluded = any(
            attr in each and (each[attr].b or bool(each[attr].s))
            for each in (node.attr, function.attr)
            for attr in _NOT_INLINED
        )
        return function if is_plain and not is_excluded else None

    def resolve(self, text: str) -> str:
        """Follows aliases from an input or fetch to the tensor that computes it."""
        tensor = _add_port(text)
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor

    def list_effects(self, call: str) -> list[str]:
        """Lists the side effects of a call, by their names in the inlined graph."""
        found = []
        pending = self._effects[call][::-1]
        while pending:
            name = pending.pop()
            if name in self._effects:
                pending += self._effects[name][::-1]
            else:
                found.append(name)
        return found

    def finish(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Builds the inlined graph, with the library of the original one."""
        waited_for: set[str] = set()
        for node in self._nodes:
            inputs = [
                self._resolve_control(text)
                if text.startswith("^")
                else _drop_port(self.resolve(text))
                for text in node.input
            ]
            data = [text for text in inputs if not text.startswith("^")]
            control = [text for text in dict.fromkeys(inputs) if text.startswith("^")]
            waited_for.update(text[1:] for text in control)
            del node.input[:]
            node.input.extend([*data, *control])
        result = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
        result.node.extend(self._nodes)
        # A NoOp takes the name of a call, so that operations that wait for it need no change.
        pending = [name for name in self._effects if name in waited_for]
        done = set(pending)
        for call in pending:
            ends = [self._resolve_control(f"^{name}") for name in self._effects[call]]
            ends += [self._resolve_control(text) for text in self._waits[call]]
            result.node.add(name=call, op="NoOp", input=list(dict.fromkeys(ends)))
            more = [end[1:] for end in ends if end[1:] in self._effects and end[1:] not in done]
            done.update(more)
            pending += more
        return result

    def _resolve_control(self, control: str) -> str:
        """Replaces a control input that names an argument by the operation that computes it."""
        alias = f"{control[1:]}:0"
        if control[1:] not in self._effects and alias in self._aliases:
            return "^" + _operation_name(self.resolve(alias))
        return control


class _Writer:
    """Writes devices into the functions of a graph."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef, assignment: Mapping[str, str]) -> None:
        self._library = graph_def.library
        self._originals = {}
        for function in graph_def.library.function:
            self._originals[function.signature.name] = function_pb2.FunctionDef()
            self._originals[function.signature.name].CopyFrom(function)
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self._assignment = assignment
        # For each function the name of the copy for a set of devices and called functions.
        self._written: dict[str, dict[tuple[tuple[str, str], ...], str]] = {}

    def write(self, call: Call) -> Nested[str]:
        """Writes the devices of a call, and returns the name of the function to call."""
        changes = {
            name: self._assignment[flat]
            for name, flat in call.names.items()
            if self._assignment.get(flat)
        }
        for name, inner in call.calls.items():
            changes[name] = yield self.write(inner)
        written = self._written.setdefault(call.function, {})
        key = tuple(sorted(changes.items()))
        if key not in written:
            written[key] = self._make_name(call.function) if written else call.function
            function = self._find_or_copy(written[key], call.function)
            for node in function.node_def:
                if node.name in call.calls:
                    _set_function(node, changes[node.name])
                elif not node.device:
                    node.device = changes.get(node.name, "")
        return written[key]

    def _find_or_copy(self, name: str, original: str) -> function_pb2.FunctionDef:
        if name == original:
            return self._functions[name]
        function = self._library.function.add()
        function.CopyFrom(self._originals[original])
        function.signature.name = name
        self._functions[name] = function
        return function

    def _make_name(self, function: str) -> str:
        # TensorFlow takes the part before the last number for the name in Python.
        number = 1
        while f"{function}_{number}" in self._functions:
            number += 1
        return f"{function}_{number}"


def _set_function(node: tf.compat.v1.NodeDef, function: str) -> None:
    """Makes a call use another function."""
    if node.op in _CALLS:
        node.attr["f"].func.name = function
    else:
        node.op = function


def _find_needed(
    nodes: Iterable[tf.compat.v1.NodeDef], fetches: Iterable[str], feeds: Iterable[str]
) -> set[str]:
    """Finds the operations that fetches need."""
    by_name = {node.name: node for node in nodes}
    fed = {_add_port(name) for name in feeds}
    found: set[str] = set()
    pending = [
        _operation_name(name) for name in fetches if ":" not in name or _add_port(name) not in fed
    ]
    while pending:
        name = pending.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        pending += [
            _operation_name(text) for text in by_name[name].input if _add_port(text) not in fed
        ]
    return found


def _rename_colocated(node: tf.compat.v1.NodeDef, scope: str, names: Iterable[str]) -> None:
    """Prefixes colocation attributes that name operations of the same body."""
    if not scope or _COLOCATION not in node.attr:
        return
    values = [
        _LOCATION + scope.encode() + value[len(_LOCATION) :]
        for value in node.attr[_COLOCATION].list.s
        if value.startswith(_LOCATION) and value[len(_LOCATION) :].decode() in names
    ]
    del node.attr[_COLOCATION]
    if values:
        node.attr[_COLOCATION].list.s.extend(values)


def _add_scope(text: str, scope: str) -> str:
    return f"^{scope}{text[1:]}" if text.startswith("^") else scope + text


def _operation_name(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]


def _add_port(text: str) -> str:
    return text if ":" in text or text.startswith("^") else f"{text}:0"


def _drop_port(tensor: str) -> str:
    return tensor.removesuffix(":0")
