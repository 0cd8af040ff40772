"""Calls of functions made part of the graph, and devices put back into the functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from graph_passes.function_body import FunctionBodies
from graph_passes.nested_runs import Nested, run_nested

__all__ = ["Call", "InlinedGraph", "inline_calls", "put_devices"]

_CALLS = frozenset(["PartitionedCall", "StatefulPartitionedCall"])
# Functions that TensorFlow runs as they are, compiles, or exchanges for another one.
_KEPT_WHOLE = ("_noinline", "_XlaMustCompile", "api_implements")
_COLOCATION, _LOCATION = "_class", b"loc:@"


@dataclasses.dataclass(frozen=True)
class Call:
    """A call whose function became part of the graph.

    Attributes:
        function: name of the function.
        names: names in the graph of the operations of its body, by their names there; without
            calls that became part of the graph, too.
        calls: these, by their names in the body.
    """

    function: str
    names: Mapping[str, str]
    calls: Mapping[str, Call]


@dataclasses.dataclass(frozen=True, eq=False)
class InlinedGraph:
    """What a step needs of a graph, without the calls in it.

    Attributes:
        graph_def: the graph; an operation of a function is called as the operations that call it
            and itself, joined by "/". What nothing in it needs any more is left out.
        fetches: what the step fetches: where a call made it, what makes it now, and the operations
            that such a call runs for their effects, if the other fetches do not run them.
        calls: the calls that are part of it, by name of the operation that called.
    """

    graph_def: tf.compat.v1.GraphDef
    fetches: tuple[str, ...]
    calls: Mapping[str, Call]


def inline_calls(
    graph_def: tf.compat.v1.GraphDef,
    fetches: Sequence[str],
    feeds: Iterable[str] = (),
    others: Iterable[str] = (),
) -> InlinedGraph:
    """Puts the operations of functions where the functions are called, again and again.

    The values of a step are the same, and so is the order of what it changes: what waits for a call
    waits for everything that the call runs for its effects. Loops and conditionals stay operations.
    So do calls that have a device of their own, or of a function that calls itself, whose types
    depend on the call, or that TensorFlow compiles, exchanges, or is told not to put there.

    Args:
        graph_def: the graph.
        fetches: names of the operations ("train") and tensors ("loss:0") that a step runs.
        feeds: names of the tensors that a step is given.
        others: operations to keep beside those of the step, with what they need.

    Returns:
        The graph.
    """
    inliner = _Inliner(graph_def)
    step = _needed(graph_def.node, fetches, feeds)
    nodes = _needed(graph_def.node, [*fetches, *others], feeds)
    own_nodes = [node for node in graph_def.node if node.name in nodes]
    calls = run_nested(inliner.add_body(own_nodes, step))
    flat = inliner.finish(graph_def)
    own = [inliner.resolved(name) if ":" in name else name for name in fetches]
    runs = _needed(flat.node, own, feeds)
    effects = {
        name
        for node in graph_def.node
        if node.name in calls and node.name in step
        for name in inliner.effects(node.name)
    }
    # Their order in a function is that of no one.
    return InlinedGraph(flat, (*dict.fromkeys(own), *sorted(effects - runs)), calls)


def put_devices(
    graph_def: tf.compat.v1.GraphDef, calls: Mapping[str, Call], assignment: Mapping[str, str]
) -> tf.compat.v1.GraphDef:
    """Writes the devices of operations into a graph and the functions that it calls.

    A function that is called in several places, and is to be on other devices there, gets a copy
    for every set of devices but the first, which is written into the function itself: whatever else
    calls it, too, sees these. An operation that came with a device keeps it.

    Args:
        graph_def: the graph as it came.
        calls: of its `InlinedGraph`.
        assignment: the device of each operation, by its name in the `InlinedGraph`.

    Returns:
        A copy of the graph with devices.
    """
    result = tf.compat.v1.GraphDef()
    result.CopyFrom(graph_def)
    writer = _Writer(result, assignment)
    for node in result.node:
        if node.name in calls:
            _call(node, run_nested(writer.write(calls[node.name])))
        elif not node.device:
            node.device = assignment.get(node.name, "")
    return result


class _Inliner:
    """Collects the operations of a graph without calls."""

    def __init__(self, graph_def: tf.compat.v1.GraphDef) -> None:
        self._functions = {each.signature.name: each for each in graph_def.library.function}
        self._bodies = FunctionBodies(graph_def)
        self._nodes: list[tf.compat.v1.NodeDef] = []
        # What stands for arguments and for results of calls: "call:0" is what makes it.
        self._aliases: dict[str, str] = {}
        # What calls run for their effects, as names of operations or calls, and what they wait for.
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
        """Adds operations, and in place of calls among them the bodies of the functions.

        Args:
            nodes: with inputs that name tensors as graphs do, within the body.
            inlined: names of those that may be calls.
            scope: what goes before the names in the graph.
            waits: what the body waits for, as inputs.
            stack: the functions that it is in.

        Returns:
            The calls.
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
            flat.input.extend(_in_scope(text, scope) for text in node.input)
            if not any(_producer(text) in names for text in node.input):
                flat.input.extend(waits)
            function = self._inlinable(node, stack) if node.name in may_be_called else None
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
            self._aliases[f"{scope}{arg.name}:0"] = _with_port(text)
        tensors = self._bodies.tensor_names(function)
        for i, arg in enumerate(function.signature.output_arg):
            made = function.ret[arg.name]
            self._aliases[f"{node.name}:{i}"] = _with_port(scope + tensors.get(made, made))
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
        self._effects[node.name] = [scope + name for name in function.control_ret.values()]
        self._waits[node.name] = waits
        return Call(
            function.signature.name,
            {name: scope + name for name in names if name not in calls},
            calls,
        )

    def _inlinable(
        self, node: tf.compat.v1.NodeDef, stack: tuple[str, ...]
    ) -> function_pb2.FunctionDef | None:
        """Finds the function whose operations can stand in the place of an operation."""
        name = node.attr["f"].func.name if node.op in _CALLS else node.op
        function = self._functions.get(name)
        if function is None or name in stack or node.device or function.signature.attr:
            return None
        args = [*function.signature.input_arg, *function.signature.output_arg]
        if any(arg.number_attr or arg.type_list_attr or arg.type_attr for arg in args):
            return None
        is_plain = not node.attr["executor_type"].s if "executor_type" in node.attr else True
        kept = any(
            attr in each and (each[attr].b or bool(each[attr].s))
            for each in (node.attr, function.attr)
            for attr in _KEPT_WHOLE
        )
        return function if is_plain and not kept else None

    def resolved(self, text: str) -> str:
        """Finds the tensor that an input or a fetch means."""
        tensor = _with_port(text)
        while tensor in self._aliases:
            tensor = self._aliases[tensor]
        return tensor

    def effects(self, call: str) -> list[str]:
        """Lists the operations that a call runs for their effects, by their names in the graph."""
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
        """Makes the graph, with the library of another one."""
        waited_for: set[str] = set()
        for node in self._nodes:
            inputs = [
                self._operation(text) if text.startswith("^") else _plain(self.resolved(text))
                for text in node.input
            ]
            data = [text for text in inputs if not text.startswith("^")]
            control = [text for text in dict.fromkeys(inputs) if text.startswith("^")]
            waited_for.update(text[1:] for text in control)
            del node.input[:]
            node.input.extend([*data, *control])
        result = tf.compat.v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
        result.node.extend(self._nodes)
        # What waits for a call waits for an operation of the same name.
        pending = [name for name in self._effects if name in waited_for]
        done = set(pending)
        for call in pending:
            ends = [self._operation(f"^{name}") for name in self._effects[call]]
            ends += [self._operation(text) for text in self._waits[call]]
            result.node.add(name=call, op="NoOp", input=list(dict.fromkeys(ends)))
            more = [end[1:] for end in ends if end[1:] in self._effects and end[1:] not in done]
            done.update(more)
            pending += more
        return result

    def _operation(self, control: str) -> str:
        """Finds what a control input means: of an argument, what makes it."""
        alias = f"{control[1:]}:0"
        if control[1:] not in self._effects and alias in self._aliases:
            return "^" + _producer(self.resolved(alias))
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
        # By function the name of what has these devices, and calls these functions.
        self._written: dict[str, dict[tuple[tuple[str, str], ...], str]] = {}

    def write(self, call: Call) -> Nested[str]:
        """Writes the devices of a call; returns the name of the function to be called."""
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
            written[key] = self._new_name(call.function) if written else call.function
            function = self._function(written[key], call.function)
            for node in function.node_def:
                if node.name in call.calls:
                    _call(node, changes[node.name])
                elif not node.device:
                    node.device = changes.get(node.name, "")
        return written[key]

    def _function(self, name: str, original: str) -> function_pb2.FunctionDef:
        if name == original:
            return self._functions[name]
        function = self._library.function.add()
        function.CopyFrom(self._originals[original])
        function.signature.name = name
        self._functions[name] = function
        return function

    def _new_name(self, function: str) -> str:
        # TensorFlow takes what comes before the last number for the name that people gave.
        number = 1
        while f"{function}_{number}" in self._functions:
            number += 1
        return f"{function}_{number}"


def _call(node: tf.compat.v1.NodeDef, function: str) -> None:
    """Makes a call one of another function."""
    if node.op in _CALLS:
        node.attr["f"].func.name = function
    else:
        node.op = function


def _needed(
    nodes: Iterable[tf.compat.v1.NodeDef], fetches: Iterable[str], feeds: Iterable[str]
) -> set[str]:
    """Finds the operations that have to run for fetches."""
    by_name = {node.name: node for node in nodes}
    fed = {_with_port(name) for name in feeds}
    found: set[str] = set()
    pending = [
        _producer(name) for name in fetches if ":" not in name or _with_port(name) not in fed
    ]
    while pending:
        name = pending.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        pending += [_producer(text) for text in by_name[name].input if _with_port(text) not in fed]
    return found


def _rename_colocated(node: tf.compat.v1.NodeDef, scope: str, names: Iterable[str]) -> None:
    """Makes what names operations of the same body name them in the graph."""
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


def _in_scope(text: str, scope: str) -> str:
    return f"^{scope}{text[1:]}" if text.startswith("^") else scope + text


def _producer(text: str) -> str:
    return text.removeprefix("^").partition(":")[0]


def _with_port(text: str) -> str:
    return text if ":" in text or text.startswith("^") else f"{text}:0"


def _plain(tensor: str) -> str:
    return tensor.removesuffix(":0")
