"""Fingerprints of graphs, which do not depend on the device or process."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.framework import tensor_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.nested_runs import Nested, run_nested

__all__ = ["FunctionDigests", "graph_fingerprint", "normalize_nodes"]

# Attributes for readers, or for building gradients in Python, which may differ in a rebuilt graph.
_NOTES = (
    *("_input_shapes", "_output_shapes", "_gradient_op_type"),
    *("forward_function_name", "backward_function_name"),
)
# TensorFlow puts a new UUID into the shared name of a lookup table in every process.
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# Arguments that the condition of a while loop ignores contain the name of a Python function.
_IGNORED = re.compile(r"\w+(?=___redundant_placeholder)")
_QUOTED = re.compile(r'"([^"\n]+)"')
# Values of constants of this size and more are left out of the text of a function until it is
# hashed, because searches in it would take most of the time.
_LARGE_BYTES = 4096
_CONTENT_NUMBER = re.compile(r"<content (\d+) of tf_placer>")
_ESCAPED_AT_ONCE_BYTES = 1 << 16
# A search computes the fingerprint of its graph several times, and escaping takes seconds.
_known_hashes: dict[bytes, str] = {}


class _Message(Protocol):
    def SerializeToString(self, *, deterministic: bool) -> bytes: ...


def graph_fingerprint(graph_def: tf.compat.v1.GraphDef) -> str:
    """Computes a hash that equal graphs share.

    The hash covers operations, their inputs and attributes, and the function library. It ignores
    devices, the order of operations, shapes noted for readers, the presence of attributes with
    their default value, and the numbers in the names of functions and tables, which differ in every
    build.

    Args:
        graph_def: the graph.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.sha256()
    functions = FunctionDigests(graph_def.library)
    plain = tf.compat.v1.NodeDef()
    for node in sorted(graph_def.node, key=lambda node: node.name):
        plain.CopyFrom(node)
        normalize_nodes([plain])
        functions.rename(plain)
        _add(digest, plain)
    for name in functions.list_digests():
        # The empty record separates operations from functions.
        _add(digest, tf.compat.v1.NodeDef())
        digest.update(name.encode())
    return digest.hexdigest()


class FunctionDigests:
    """The functions of a library, identified by digests as their names have numbers."""

    def __init__(self, library: tf.compat.v1.GraphDef.library) -> None:
        """Uses a library; a digest is computed when it is needed."""
        self._functions = {each.signature.name: each for each in library.function}
        self._gradients = {each.function_name: each.gradient_func for each in library.gradient}
        self._digests: dict[str, str] = {}

    def list_digests(self) -> list[str]:
        """Computes the digests of all functions, sorted."""
        return sorted(self._compute_digest(name) for name in self._functions)

    def rename(self, node: tf.compat.v1.NodeDef) -> None:
        """Replaces the names of the functions that a node calls by their digests."""
        if not self._functions:
            return
        if node.op in self._functions:
            node.op = self._compute_digest(node.op)
        for function in _iterate_calls(node):
            if function.name in self._functions:
                function.name = self._compute_digest(function.name)

    def _compute_digest(self, name: str) -> str:
        return run_nested(self._digest_function(name))

    def _digest_function(self, name: str) -> Nested[str]:
        if name in self._digests:
            return self._digests[name]
        # Ends recursion: a recursive function refers to itself by this name.
        self._digests[name] = "itself"
        function = self._functions[name]
        plain = type(function)()
        plain.CopyFrom(function)
        for note in _NOTES:
            plain.attr.pop(note, None)
        normalize_nodes(plain.node_def)
        plain.signature.ClearField("name")
        for arg in (*plain.signature.input_arg, *plain.signature.output_arg):
            arg.ClearField("handle_data")
        contents = _take_large_contents(plain.node_def)
        text = _IGNORED.sub("", text_format.MessageToString(plain))
        for match in _QUOTED.finditer(text):
            if match[1] in self._functions:
                yield self._digest_function(match[1])
        text = _QUOTED.sub(self._replace_name, text)
        # The gradient function is missing in a damaged library.
        if self._gradients.get(name) in self._functions:
            text += yield self._digest_function(self._gradients[name])
        self._digests[name] = _hash_text(text, contents)
        return self._digests[name]

    def _replace_name(self, match: re.Match[str]) -> str:
        name = match[1]
        return f'"{self._digests[name]}"' if name in self._functions else match[0]


def _take_large_contents(nodes: Iterable[tf.compat.v1.NodeDef]) -> list[bytes]:
    """Replaces the large values of constants by their numbers, and returns them."""
    contents: list[bytes] = []
    for node in nodes:
        for attribute in node.attr.values():
            if len(attribute.tensor.tensor_content) >= _LARGE_BYTES:
                contents.append(attribute.tensor.tensor_content)
                number = f"<content {len(contents) - 1} of tf_placer>"
                attribute.tensor.tensor_content = number.encode()
    return contents


def _hash_text(text: str, contents: Sequence[bytes]) -> str:
    """Hashes the text of a function with the values of its constants, as text format has them."""
    if not contents:
        return hashlib.sha256(text.encode()).hexdigest()
    unescaped = hashlib.sha256(text.encode())
    for content in contents:
        unescaped.update(content)
    key = unescaped.digest()
    if key not in _known_hashes:
        _known_hashes[key] = _hash_escaped(text, contents)
    return _known_hashes[key]


def _hash_escaped(text: str, contents: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    first, *others = _CONTENT_NUMBER.split(text)
    digest.update(first.encode())
    for number, after in zip(others[::2], others[1::2], strict=True):
        content = np.frombuffer(contents[int(number)], np.uint8)
        for start in range(0, len(content), _ESCAPED_AT_ONCE_BYTES):
            padded = _list_escapes()[content[start : start + _ESCAPED_AT_ONCE_BYTES]]
            digest.update(padded.tobytes().translate(None, delete=b"\0"))
        digest.update(after.encode())
    return digest.hexdigest()


@functools.cache
def _list_escapes() -> np.ndarray:
    """Lists the text that stands for each byte in text format, as bytes [256] of length 4."""
    escapes = []
    for byte in range(256):
        text = text_format.MessageToString(tensor_pb2.TensorProto(tensor_content=bytes([byte])))
        escapes.append(text.strip().removeprefix('tensor_content: "').removesuffix('"').encode())
    # NumPy copies integers faster than strings.
    return np.array(escapes, "S4").view(np.uint32)


def _iterate_calls(node: tf.compat.v1.NodeDef) -> Iterator[tf.compat.v1.NameAttrList]:
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func
        yield from attribute.list.func


@functools.cache
def _find_defaults(op_type: str) -> dict[str, tf.compat.v1.AttrValue]:
    op_def = op_def_registry.get(op_type)
    attributes = () if op_def is None else op_def.attr
    return {each.name: each.default_value for each in attributes if each.HasField("default_value")}


def normalize_nodes(nodes: Iterable[tf.compat.v1.NodeDef]) -> None:
    """Removes fields that the hash ignores, and adds default values that an export left out."""
    for node in nodes:
        node.ClearField("device")
        node.ClearField("experimental_debug_info")
        for name, value in _find_defaults(node.op).items():
            if name not in node.attr:
                node.attr[name].CopyFrom(value)
        for name in _NOTES:
            node.attr.pop(name, None)
        if "shared_name" in node.attr:
            node.attr["shared_name"].s = _UUID.sub(b"", node.attr["shared_name"].s)


def _add(digest: hashlib._Hash, message: _Message) -> None:
    # The length prefix makes different sequences of records different bytes.
    data = message.SerializeToString(deterministic=True)
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)
