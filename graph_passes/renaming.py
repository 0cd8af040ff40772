"""Graphs that the same program built under other names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.functions import called_functions
from graph_passes.placement import Placement

__all__ = ["names_in", "renamed_placement"]

_COLOCATED = b"loc:@"
_FOR_READERS = ("_user_specified_name", "debug_name")


def names_in(
    graph_def: tf.compat.v1.GraphDef, other: tf.compat.v1.GraphDef
) -> Mapping[str, str] | None:
    """Finds the operations of a graph in another one that differs in their names only.

    Operations correspond by their places in the two graphs, and so do those of functions, such as
    the bodies of loops.

    Args:
        graph_def: the graph.
        other: the other one.

    Returns:
        By the name of each operation its name in the other graph; None if something else differs.
    """
    if [node.op for node in graph_def.node] != [node.op for node in other.node]:
        return None
    pairs = list(zip(graph_def.node, other.node, strict=True))
    names = {there.name: here.name for here, there in pairs}
    renamed = tf.compat.v1.GraphDef(library=_functions_by_place(other))
    for here, there in pairs:
        node = renamed.node.add()
        node.CopyFrom(there)
        node.name = here.name
        node.input[:] = _renamed_inputs(there.input, names)
        for key in _FOR_READERS:
            if key in node.attr and key in here.attr:
                node.attr[key].CopyFrom(here.attr[key])
        shared = node.attr["shared_name"].s.decode() if "shared_name" in node.attr else ""
        if shared in names:
            node.attr["shared_name"].s = names[shared].encode()
        _rename_classes(node, names)
    plain = tf.compat.v1.GraphDef(node=graph_def.node, library=_functions_by_place(graph_def))
    if graph_fingerprint(renamed) != graph_fingerprint(plain):
        return None
    return {here.name: there.name for here, there in pairs}


def renamed_placement(placement: Placement, names: Mapping[str, str]) -> Placement:
    """Makes the placement of a graph one of the graph that has these names instead."""
    assignment = {names[name]: device for name, device in placement.assignment.items()}
    return dataclasses.replace(placement, assignment=assignment)


def _functions_by_place(graph_def: tf.compat.v1.GraphDef) -> function_pb2.FunctionDefLibrary:
    """Names what is in functions that are called by its places; they keep their own names."""
    plain = called_functions(graph_def)
    for function in plain.function:
        signature = function.signature
        names = {arg.name: f"argument_{i}" for i, arg in enumerate(signature.input_arg)}
        names |= {node.name: f"operation_{i}" for i, node in enumerate(function.node_def)}
        results = {arg.name: f"result_{i}" for i, arg in enumerate(signature.output_arg)}
        effects = {name: f"effect_{i}" for i, name in enumerate(signature.control_output)}
        for arg in signature.input_arg:
            arg.name = names[arg.name]
        for arg in signature.output_arg:
            arg.name = results[arg.name]
        signature.control_output[:] = effects.values()
        for of_names, renamed in ((function.ret, results), (function.control_ret, effects)):
            given = {renamed[name]: _renamed_input(text, names) for name, text in of_names.items()}
            of_names.clear()
            of_names.update(given)
        for attributes in function.arg_attr.values():
            _leave_out_notes(attributes.attr)
        for node in function.node_def:
            node.name = names[node.name]
            node.input[:] = _renamed_inputs(node.input, names)
            _leave_out_notes(node.attr)
            _rename_classes(node, names)
    return plain


def _leave_out_notes(attributes: Any) -> None:
    for key in _FOR_READERS:
        attributes.pop(key, None)


def _renamed_inputs(inputs: Iterable[str], names: Mapping[str, str]) -> list[str]:
    renamed = [_renamed_input(text, names) for text in inputs]
    # What is only waited for is in the order of the names; a sort keeps all else as it is.
    return sorted(renamed, key=lambda text: text if text.startswith("^") else "")


def _renamed_input(text: str, names: Mapping[str, str]) -> str:
    mark = "^" if text.startswith("^") else ""
    name, colon, number = text.removeprefix("^").partition(":")
    return f"{mark}{names.get(name, name)}{colon}{number}"


def _rename_classes(node: tf.compat.v1.NodeDef, names: Mapping[str, str]) -> None:
    if "_class" in node.attr:
        classes = node.attr["_class"].list.s
        of_names = [text.removeprefix(_COLOCATED).decode() for text in classes]
        classes[:] = [_COLOCATED + names.get(name, name).encode() for name in of_names]
