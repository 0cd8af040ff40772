"""A name for a graph that does not depend on where it runs."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import Protocol

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework import op_def_registry

from graph_passes.nested_runs import Nested, run_nested

__all__ = ["graph_fingerprint"]

# Written down for readers, or for building gradients in Python; a graph that is built anew may lack
# them or have others.
_NOTES = (
    *("_input_shapes", "_output_shapes", "_gradient_op_type"),
    *("forward_function_name", "backward_function_name"),
)
# TensorFlow makes up the shared name of a lookup table anew in every process.
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Arguments of a while loop that its condition ignores bear the name of a function it was made from.
_IGNORED = re.compile(r"\w+(?=___redundant_placeholder)")
_QUOTED = re.compile(r'"([^"\n]+)"')


class _Message(Protocol):
    def SerializeToString(self, *, deterministic: bool) -> bytes: ...


def graph_fingerprint(graph_def: tf.compat.v1.GraphDef) -> str:
    """Computes a hash that two equal graphs share.

    Operations, their inputs and attributes, and the function library count; devices, the order of
    operations, shapes written down for readers, whether attributes that have their default value
    are there, and the numbers in the names of functions and tables, which are others whenever a
    graph is built, do not.

    Args:
        graph_def: the graph.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    functions = _Functions(graph_def.library)
    plain = tf.compat.v1.NodeDef()
    for node in sorted(graph_def.node, key=lambda node: node.name):
        plain.CopyFrom(node)
        _normalize([plain])
        functions.rename(plain)
        _add(digest, plain)
    for name in functions.digests():
        # So that an operation never looks like a function.
        _add(digest, tf.compat.v1.NodeDef())
        digest.update(name.encode())
    return digest.hexdigest()


class _Functions:
    """The functions of a library, known by what they do: their own names hold numbers."""

    def __init__(self, library: tf.compat.v1.GraphDef.library) -> None:
        self._functions = {each.signature.name: each for each in library.function}
        self._gradients = {each.function_name: each.gradient_func for each in library.gradient}
        self._digests: dict[str, str] = {}

    def digests(self) -> list[str]:
        """Computes the digests of all functions, sorted."""
        return sorted(self._digest(name) for name in self._functions)

    def rename(self, node: tf.compat.v1.NodeDef) -> None:
        """Calls the functions that a node calls by their digests."""
        if not self._functions:
            return
        if node.op in self._functions:
            node.op = self._digest(node.op)
        for function in _called(node):
            if function.name in self._functions:
                function.name = self._digest(function.name)

    def _digest(self, name: str) -> str:
        return run_nested(self._find_digest(name))

    def _find_digest(self, name: str) -> Nested[str]:
        if name in self._digests:
            return self._digests[name]
        # What a function that calls itself finds.
        self._digests[name] = "itself"
        function = self._functions[name]
        plain = type(function)()
        plain.CopyFrom(function)
        for note in _NOTES:
            plain.attr.pop(note, None)
        _normalize(plain.node_def)
        plain.signature.ClearField("name")
        for arg in (*plain.signature.input_arg, *plain.signature.output_arg):
            arg.ClearField("handle_data")
        text = _IGNORED.sub("", text_format.MessageToString(plain))
        for quoted in _QUOTED.finditer(text):
            if quoted[1] in self._functions:
                yield self._find_digest(quoted[1])
        text = _QUOTED.sub(self._called_in_text, text)
        # A damaged library lacks it.
        if self._gradients.get(name) in self._functions:
            text += yield self._find_digest(self._gradients[name])
        self._digests[name] = hashlib.sha256(text.encode()).hexdigest()
        return self._digests[name]

    def _called_in_text(self, quoted: re.Match[str]) -> str:
        name = quoted[1]
        return f'"{self._digests[name]}"' if name in self._functions else quoted[0]


def _called(node: tf.compat.v1.NodeDef) -> Iterator[tf.compat.v1.NameAttrList]:
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func
        yield from attribute.list.func


@functools.cache
def _defaults(op_type: str) -> dict[str, tf.compat.v1.AttrValue]:
    op_def = op_def_registry.get(op_type)
    attributes = () if op_def is None else op_def.attr
    return {each.name: each.default_value for each in attributes if each.HasField("default_value")}


def _normalize(nodes: Iterable[tf.compat.v1.NodeDef]) -> None:
    """Removes what does not count, and adds the default values that an export has left out."""
    for node in nodes:
        node.ClearField("device")
        node.ClearField("experimental_debug_info")
        for name, value in _defaults(node.op).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(value)
        for name in _NOTES:
            node.attr.pop(name, None)
        if "shared_name" in node.attr:
            node.attr["shared_name"].s = _UUID.sub(b"", node.attr["shared_name"].s)


def _add(digest: hashlib._Hash, message: _Message) -> None:
    # With its length, so that no two sequences of records look the same.
    data = message.SerializeToString(deterministic=True)
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)
