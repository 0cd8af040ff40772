"""Comparison of graphs that differ only in the names of their operations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.functions import copy_called_functions
from graph_passes.placement import Placement

__all__ = ["copy_functions_by_position", "map_names", "rename_placement"]

_COLOCATED = b"loc:@"
_NOTES = ("_user_specified_name", "debug_name")


def map_names(
    graph_def: tf.compat.v1.GraphDef, other: tf.compat.v1.GraphDef
) -> Mapping[str, str] | None:
    """Maps the operations of a graph to those of another one that differs only in their names.

    Operations correspond by their position in the two graphs, also in functions, such as the bodies
    of loops.

    Args:
        graph_def: the graph.
        other: the other graph.

    Returns:
        The name in the other graph of each operation, by name; None if more than names differs.
    """
    if [node.op for node in graph_def.node] != [node.op for node in other.node]:
        return None
    pairs = list(zip(graph_def.node, other.node, strict=True))
    names = {there.name: here.name for here, there in pairs}
    renamed = tf.compat.v1.GraphDef(library=copy_functions_by_position(other))
    for here, there in pairs:
        node = renamed.node.add()
        node.CopyFrom(there)
        node.name = here.name
        node.input[:] = _rename_inputs(there.input, names)
        for key in _NOTES:
            if key in node.attr and key in here.attr:
                node.attr[key].CopyFrom(here.attr[key])
        shared = node.attr["shared_name"].s.decode() if "shared_name" in node.attr else ""
        if shared in names:
            node.attr["shared_name"].s = names[shared].encode()
        _rename_classes(node, names)
    plain = tf.compat.v1.GraphDef(
        node=graph_def.node, library=copy_functions_by_position(graph_def)
    )
    if graph_fingerprint(renamed) != graph_fingerprint(plain):
        return None
    return {here.name: there.name for here, there in pairs}


def rename_placement(placement: Placement, names: Mapping[str, str]) -> Placement:
    """Renames the operations of a placement.

    Args:
        placement: the placement.
        names: the new name of each operation, by its old name, as from `map_names`.
    """
    assignment = {names[name]: device for name, device in placement.assignment.items()}
    return dataclasses.replace(placement, assignment=assignment)


def copy_functions_by_position(
    graph_def: tf.compat.v1.GraphDef,
) -> function_pb2.FunctionDefLibrary:
    """Copies the called functions, with their content renamed by position."""
    plain = copy_called_functions(graph_def)
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
            given = {renamed[name]: _rename_input(text, names) for name, text in of_names.items()}
            of_names.clear()
            of_names.update(given)
        for attributes in function.arg_attr.values():
            _drop_notes(attributes.attr)
        for node in function.node_def:
            node.name = names[node.name]
            node.input[:] = _rename_inputs(node.input, names)
            _drop_notes(node.attr)
            _rename_classes(node, names)
    return plain


def _drop_notes(attributes: Any) -> None:
    for key in _NOTES:
        attributes.pop(key, None)


def _rename_inputs(inputs: Iterable[str], names: Mapping[str, str]) -> list[str]:
    renamed = [_rename_input(text, names) for text in inputs]
    # Control inputs are ordered by name; the stable sort keeps the order of data inputs.
    return sorted(renamed, key=lambda text: text if text.startswith("^") else "")


def _rename_input(text: str, names: Mapping[str, str]) -> str:
    mark = "^" if text.startswith("^") else ""
    name, colon, number = text.removeprefix("^").partition(":")
    return f"{mark}{names.get(name, name)}{colon}{number}"


def _rename_classes(node: tf.compat.v1.NodeDef, names: Mapping[str, str]) -> None:
    if "_class" in node.attr:
        classes = node.attr["_class"].list.s
        of_names = [text.removeprefix(_COLOCATED).decode() for text in classes]
        classes[:] = [_COLOCATED + names.get(name, name).encode() for name in of_names]
