"""What the loops of a graph put into lists of tensors, told to TensorFlow's shape inference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.framework import function_pb2, types_pb2

__all__ = ["LOOPS", "ListFacts", "producer", "tell_list_elements"]

_Node: TypeAlias = tf.compat.v1.NodeDef
#: Loops whose bodies are functions.
LOOPS = ("While", "StatelessWhile")

_MAKES = ("TensorListReserve", "EmptyTensorList")
_SPLIT = "TensorListFromTensor"
_STACK = "TensorListStack"
# Which input of it goes into the list.
_PUTS = {"TensorListSetItem": 2, "TensorListPushBack": 1}
_SIZELESS = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_OF_SHAPES = (types_pb2.DT_INT32, types_pb2.DT_INT64)
# No tensor that counts has more dimensions.
_MAX_DIMENSIONS = 16


@dataclasses.dataclass(frozen=True)
class ListFacts:
    """What is known of lists of tensors once the shapes of a graph are inferred.

    A tensor is the name of its operation and a number.

    Attributes:
        rows: for each operation that stacks a list of a number of tensors known beforehand: its
            name, and a tensor with as many rows.
        values: for each list of whole numbers that a loop hands out: the list, and a tensor whose
            shape are the numbers that the first iteration puts in, at most 16.
    """

    rows: Sequence[tuple[str, tuple[str, int]]] = ()
    values: Mapping[tuple[str, int], tuple[str, int]] = dataclasses.field(default_factory=dict)


def producer(text: str) -> tuple[str, int]:
    """Reads "name", "name:1" or, in a function, "name:output:1" as a name and a number."""
    name, *rest = text.lstrip("^").split(":")
    return name, int(rest[-1]) if rest else 0


def tell_list_elements(graph_def: tf.compat.v1.GraphDef) -> ListFacts:
    """Makes lists be of the shape of what loops put into them.

    A list is made before anything is put into it, and what is taken from it has the shape that it
    was made with. Here it is made with the shape of what the first iteration puts in, which a call
    of the body, added to the graph, hands out.

    Args:
        graph_def: the graph, which is changed.

    Returns:
        What the changed graph tells of them.
    """
    if not any(node.op in LOOPS for node in graph_def.node):
        return ListFacts()
    values: dict[tuple[str, int], tuple[str, int]] = {}
    by_name = {node.name: node for node in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    for loop in [node for node in by_name.values() if node.op in LOOPS]:
        body = functions.get(loop.attr["body"].func.name)
        if body is None:
            continue
        made = {}
        for port, text in enumerate(t for t in loop.input if not t.startswith("^")):
            maker, _ = _behind(text, by_name)
            if maker is not None and maker.op in _MAKES:
                made[port] = maker
        items = {port: item for port, item in _items(body) if port in made}
        if items:
            values |= _add_items(graph_def, loop, body, made, items)
    for node in [node for node in by_name.values() if node.op == _SPLIT]:
        _set_element_shape(graph_def, node)
    stacks = []
    for node in [node for node in by_name.values() if node.op == _STACK]:
        rows = _rows(graph_def, node.name, node.input[0], by_name)
        if rows is not None:
            stacks.append((node.name, rows))
    return ListFacts(stacks, values)


def _rows(
    graph_def: tf.compat.v1.GraphDef, name: str, text: str, by_name: Mapping[str, _Node]
) -> tuple[str, int] | None:
    """Names a tensor with as many rows as a list has tensors; adds one where there is none."""
    node, port = _behind(text, by_name)
    while node is not None and node.op in (*LOOPS, "ZerosLike", "TensorListReserve"):
        if node.op == "TensorListReserve":
            length, _ = _behind(node.input[1], by_name)
            if length is None or length.op != "TensorListLength":
                return _add_rows(graph_def, f"{name}/tf_placer_rows", node.input[1]), 0
            node, port = length, 0
        node, port = _behind(node.input[port], by_name)
    if node is None or node.op != _SPLIT:
        return None
    return producer(node.input[0])


def _behind(text: str, by_name: Mapping[str, _Node]) -> tuple[_Node | None, int]:
    """Finds the operation that makes a tensor, through those that hand it on, and which output."""
    name, port = producer(text)
    while name in by_name and by_name[name].op == "Identity":
        name, port = producer(by_name[name].input[0])
    return by_name.get(name), port


def _items(body: function_pb2.FunctionDef) -> Iterator[tuple[int, tuple[str, int]]]:
    """Names what the body puts into lists that it hands on: by output, the tensor and its type."""
    nodes = {node.name: node for node in body.node_def}
    for port, output in enumerate(body.signature.output_arg):
        node, _ = _behind(body.ret[output.name], nodes)
        if node is not None and node.op in _PUTS:
            dtype = node.attr["element_dtype"].type
            if dtype not in _SIZELESS:
                yield port, (node.input[_PUTS[node.op]], dtype)


def _add_items(
    graph_def: tf.compat.v1.GraphDef,
    loop: _Node,
    body: function_pb2.FunctionDef,
    made: Mapping[int, _Node],
    items: Mapping[int, tuple[str, int]],
) -> dict[tuple[str, int], tuple[str, int]]:
    """Adds a call of the body that hands out what it puts into lists, which are made alike.

    Returns:
        Of what the loop hands out, lists of whole numbers, and tensors of these numbers as shape.
    """
    function = graph_def.library.function.add()
    function.CopyFrom(body)
    function.signature.name = f"{loop.name.replace('/', '_')}_tf_placer_items"
    del function.signature.output_arg[:]
    del function.signature.control_output[:]
    function.ret.clear()
    function.control_ret.clear()
    call = graph_def.node.add(name=f"{loop.name}/tf_placer_items", op="StatefulPartitionedCall")
    call.input.extend(text for text in loop.input if not text.startswith("^"))
    call.attr["Tin"].list.type.extend(loop.attr["T"].list.type)
    call.attr["f"].func.name = function.signature.name
    for port, maker in made.items():
        # The list itself is to follow from the call.
        empty = graph_def.node.add()
        empty.CopyFrom(maker)
        empty.name = f"{loop.name}/tf_placer_list_{port}"
        call.input[port] = empty.name
    for number, (port, (text, dtype)) in enumerate(items.items()):
        function.signature.output_arg.add(name=f"item_{number}", type=dtype)
        function.ret[f"item_{number}"] = text
        call.attr["Tout"].list.type.append(dtype)
        shape = graph_def.node.add(name=f"{loop.name}/tf_placer_item_{port}", op="Shape")
        shape.input.append(f"{call.name}:{number}")
        shape.attr["T"].type = dtype
        shape.attr["out_type"].type = made[port].attr["shape_type"].type
        made[port].input[0] = shape.name
    values = {}
    for port, (text, dtype) in items.items():
        if dtype in _OF_SHAPES:
            # Shapes are what TensorFlow infers; a value is one if something is made of that shape.
            values[loop.name, port] = call.name, len(call.attr["Tout"].list.type)
            function.signature.output_arg.add(name=f"value_{port}", type=types_pb2.DT_INT32)
            function.ret[f"value_{port}"] = _add_of_shape(function, f"value_{port}", text, dtype)
            call.attr["Tout"].list.type.append(types_pb2.DT_INT32)
    return values


def _add_of_shape(function: function_pb2.FunctionDef, name: str, text: str, dtype: int) -> str:
    """Adds a tensor to a function whose shape are the values of another; -1 counts as unknown."""
    with tf.Graph().as_default() as graph:
        # TensorFlow refuses a shape with what is below -1.
        value = tf.compat.v1.placeholder(dtype, name="value")
        sizes = tf.reshape(tf.maximum(value, tf.constant(-1, dtype)), [-1])[:_MAX_DIMENSIONS]
        tf.fill(sizes, 0, name="filled")
    prefix = f"tf_placer_{name}/"
    # A function names outputs by what they are in the operation's definition.
    names = {
        operation.name: f"{prefix}{operation.name}:{operation.op_def.output_arg[0].name}:0"
        for operation in graph.get_operations()
    } | {"value": text}
    for node in graph.as_graph_def().node:
        if node.name != "value":
            added = function.node_def.add()
            added.CopyFrom(node)
            added.name = prefix + node.name
            del added.input[:]
            added.input.extend(names[read] for read in node.input)
    return names["filled"]


def _set_element_shape(graph_def: tf.compat.v1.GraphDef, split: _Node) -> None:
    """Makes a list of the rows of a tensor be one of tensors of their shape."""
    index_type = split.attr["shape_type"].type
    shape = graph_def.node.add(name=f"{split.name}/tf_placer_shape", op="Shape")
    shape.input.append(split.input[0])
    shape.attr["T"].type = split.attr["element_dtype"].type
    shape.attr["out_type"].type = index_type
    one = _add_constant(graph_def, f"{split.name}/tf_placer_one", [1])
    rest = graph_def.node.add(name=f"{split.name}/tf_placer_rest", op="StridedSlice")
    rest.input.extend([shape.name, one, one, one])
    rest.attr["T"].type = index_type
    rest.attr["Index"].type = types_pb2.DT_INT32
    for mask in ("begin_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"):
        rest.attr[mask].i = 0
    rest.attr["end_mask"].i = 1
    split.input[1] = rest.name


def _add_rows(graph_def: tf.compat.v1.GraphDef, name: str, length: str) -> str:
    """Adds a tensor with as many rows as a number says; returns its name."""
    dims = graph_def.node.add(name=f"{name}/dims", op="Pack", input=[length])
    dims.attr["N"].i = 1
    dims.attr["T"].type = types_pb2.DT_INT32
    zero = _add_constant(graph_def, f"{name}/zero", 0)
    rows = graph_def.node.add(name=name, op="Fill", input=[dims.name, zero])
    rows.attr["T"].type = types_pb2.DT_INT32
    rows.attr["index_type"].type = types_pb2.DT_INT32
    return name


def _add_constant(graph_def: tf.compat.v1.GraphDef, name: str, value: Any) -> str:
    node = graph_def.node.add(name=name, op="Const")
    node.attr["dtype"].type = types_pb2.DT_INT32
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value, tf.int32))
    return name
