"""Functions of a graph, written down as GraphDefs have them."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.core.framework import function_pb2

__all__ = [
    "add_call",
    "add_conditional",
    "add_function",
    "build_nested_functions",
    "graph_with_call",
]

tf1 = tf.compat.v1
_FLOAT, _BOOL = tf.float32.as_datatype_enum, tf.bool.as_datatype_enum


def add_function(graph_def: tf1.GraphDef, name: str) -> function_pb2.FunctionDef:
    """Adds a function of a float32 "x" that returns "y", which its body has to make."""
    function = graph_def.library.function.add()
    function.signature.name = name
    function.signature.input_arg.add(name="x", type=_FLOAT)
    function.signature.output_arg.add(name="y", type=_FLOAT)
    return function


def add_call(function: function_pb2.FunctionDef, called: str, *, op: str = "") -> None:
    """Has a function return what another one returns, called by its name or by an operation."""
    node = function.node_def.add(name="call", op=op or called, input=["x"])
    function.ret["y"] = "call:output:0" if op else "call:y:0"
    if op:
        node.attr["Tin"].list.type.append(_FLOAT)
        node.attr["Tout"].list.type.append(_FLOAT)
        node.attr["f"].func.name = called


def add_conditional(
    function: function_pb2.FunctionDef, branches: Sequence[str], *, lowered: bool = False
) -> None:
    """Has a function return what one of two branches returns: the first where "x" is not 0."""
    node = function.node_def.add(name="if", op="If", input=["x", "x"])
    node.attr["Tcond"].type = _FLOAT
    node.attr["Tin"].list.type.append(_FLOAT)
    node.attr["Tout"].list.type.append(_FLOAT)
    node.attr["then_branch"].func.name, node.attr["else_branch"].func.name = branches
    node.attr["_lower_using_switch_merge"].b = lowered
    function.ret["y"] = "if:output:0"


def graph_with_call(called: str, *, op: str = "PartitionedCall") -> tf1.GraphDef:
    """Makes a graph whose operation "call" calls a function of this name, yet to be added."""
    with tf.Graph().as_default() as graph:
        tf.constant([1.0, 2.0], name="x")
    graph_def = graph.as_graph_def()
    node = graph_def.node.add(name="call", op=op or called, input=["x"])
    if op:
        node.attr["Tin"].list.type.append(_FLOAT)
        node.attr["Tout"].list.type.append(_FLOAT)
        node.attr["f"].func.name = called
    return graph_def


def build_nested_functions(depth: int) -> tf1.GraphDef:
    """Makes a graph that calls "f0", which calls "f1" and so on; the last negates its argument."""
    graph_def = graph_with_call("f0")
    for number in range(depth - 1):
        add_call(add_function(graph_def, f"f{number}"), f"f{number + 1}", op="PartitionedCall")
    last = add_function(graph_def, f"f{depth - 1}")
    last.node_def.add(name="negative", op="Neg", input=["x"]).attr["T"].type = _FLOAT
    last.ret["y"] = "negative:y:0"
    return graph_def
