"""Graphs that the same program built under other names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import tensorflow as tf

from graph_passes.fingerprint import graph_fingerprint
from graph_passes.placement import Placement

__all__ = ["names_in", "renamed_placement"]

_COLOCATED = b"loc:@"
_FOR_READERS = ("_user_specified_name", "debug_name")


def names_in(
    graph_def: tf.compat.v1.GraphDef, other: tf.compat.v1.GraphDef
) -> Mapping[str, str] | None:
    """Finds the operations of a graph in another one that differs in their names only.

    Operations correspond by their places in the two graphs. Names within functions, such as the
    bodies of loops, must be the same.

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
    renamed = tf.compat.v1.GraphDef(library=other.library)
    for here, there in pairs:
        node = renamed.node.add()
        node.CopyFrom(there)
        node.name = here.name
        inputs = [_renamed_input(text, names) for text in there.input]
        # What is only waited for is in the order of the names; a sort keeps all else as it is.
        node.input[:] = sorted(inputs, key=lambda text: text if text.startswith("^") else "")
        for key in _FOR_READERS:
            if key in node.attr and key in here.attr:
                node.attr[key].CopyFrom(here.attr[key])
        shared = node.attr["shared_name"].s.decode() if "shared_name" in node.attr else ""
        if shared in names:
            node.attr["shared_name"].s = names[shared].encode()
        if "_class" in node.attr:
            classes = node.attr["_class"].list.s
            classes[:] = [_renamed_class(text, names) for text in classes]
    if graph_fingerprint(renamed) != graph_fingerprint(graph_def):
        return None
    return {here.name: there.name for here, there in pairs}


def renamed_placement(placement: Placement, names: Mapping[str, str]) -> Placement:
    """Makes the placement of a graph one of the graph that has these names instead."""
    assignment = {names[name]: device for name, device in placement.assignment.items()}
    return dataclasses.replace(placement, assignment=assignment)


def _renamed_input(text: str, names: Mapping[str, str]) -> str:
    mark = "^" if text.startswith("^") else ""
    name, colon, number = text.removeprefix("^").partition(":")
    return f"{mark}{names.get(name, name)}{colon}{number}"


def _renamed_class(text: bytes, names: Mapping[str, str]) -> bytes:
    name = text.removeprefix(_COLOCATED).decode()
    return _COLOCATED + names.get(name, name).encode()
