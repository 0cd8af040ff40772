"""Element shapes of the TensorLists that loops fill, for TensorFlow's shape inference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.framework import function_pb2, types_pb2

__all__ = ["LOOPS", "TensorListShapes", "add_list_shapes", "parse_tensor_name"]

_Node: TypeAlias = tf.compat.v1.NodeDef
#: Loops whose bodies are functions.
LOOPS = ("While", "StatelessWhile")

_CREATES = ("TensorListReserve", "EmptyTensorList")
_SPLIT = "TensorListFromTensor"
_STACK = "TensorListStack"
# The number of the input that is written to the list.
_WRITES = {"TensorListSetItem": 2, "TensorListPushBack": 1}
_SIZELESS = (types_pb2.DT_STRING, types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_SHAPE_TYPES = (types_pb2.DT_INT32, types_pb2.DT_INT64)
# An upper bound of useful ranks.
_MAX_RANK = 16


@dataclasses.dataclass(frozen=True)
class TensorListShapes:
    """Tensors of a graph whose inferred shapes tell the lengths and values of TensorLists.

    A tensor is the name of its operation and an output number.

    Attributes:
        rows: for each operation that stacks a TensorList of known length: its name, and a tensor
            with that number of rows.
        values: for each TensorList of integers that a loop returns: a tensor whose shape are the
            integers (at most 16) that the first iteration writes.
    """

    rows: Sequence[tuple[str, tuple[str, int]]] = ()
    values: Mapping[tuple[str, int], tuple[str, int]] = dataclasses.field(default_factory=dict)


def parse_tensor_name(text: str) -> tuple[str, int]:
    """Parses "name", "name:1" or, in a function, "name:output:1" into a name and a number."""
    name, *rest = text.lstrip("^").split(":")
    return name, int(rest[-1]) if rest else 0


def add_list_shapes(graph_def: tf.compat.v1.GraphDef) -> TensorListShapes:
    """Sets the element shapes of TensorLists to the shapes of the elements that loops write.

    A TensorList is created before its first element, and TensorFlow infers that its elements have
    the shape given at its creation. This function sets that shape to the shape of the element that
    the first iteration writes, which is the result of a call of the body added to the graph.

    Args:
        graph_def: the graph, changed in place.

    Returns:
        The tensors of the changed graph that tell lengths and values.
    """
    if not any(node.op in LOOPS for node in graph_def.node):
        return TensorListShapes()
    values: dict[tuple[str, int], tuple[str, int]] = {}
    by_name = {node.name: node for node in graph_def.node}
    functions = {f.signature.name: f for f in graph_def.library.function}
    for loop in [node for node in by_name.values() if node.op in LOOPS]:
        body = functions.get(loop.attr["body"].func.name)
        if body is None:
            continue
        created = {}
        for port, text in enumerate(t for t in loop.input if not t.startswith("^")):
            creator, _ = _skip_identities(text, by_name)
            if creator is not None and creator.op in _CREATES:
                created[port] = creator
        items = {port: item for port, item in _list_written_items(body) if port in created}
        if items:
            values |= _add_items(graph_def, loop, body, created, items)
    for node in [node for node in by_name.values() if node.op == _SPLIT]:
        _set_element_shape(graph_def, node)
    stacks = []
    for node in [node for node in by_name.values() if node.op == _STACK]:
        rows = _find_rows(graph_def, node.name, node.input[0], by_name)
        if rows is not None:
            stacks.append((node.name, rows))
    return TensorListShapes(stacks, values)


def _find_rows(
    graph_def: tf.compat.v1.GraphDef, name: str, text: str, by_name: Mapping[str, _Node]
) -> tuple[str, int] | None:
    """Finds or adds a tensor with as many rows as a TensorList has elements."""
    node, port = _skip_identities(text, by_name)
    while node is not None and node.op in (*LOOPS, "ZerosLike", "TensorListReserve"):
        if node.op == "TensorListReserve":
            length, _ = _skip_identities(node.input[1], by_name)
            if length is None or length.op != "TensorListLength":
                return _add_rows(graph_def, f"{name}/tf_placer_rows", node.input[1]), 0
            node, port = length, 0
        node, port = _skip_identities(node.input[port], by_name)
    if node is None or node.op != _SPLIT:
        return None
    return parse_tensor_name(node.input[0])


def _skip_identities(text: str, by_name: Mapping[str, _Node]) -> tuple[_Node | None, int]:
    """Follows identities back to the operation and output that compute a tensor."""
    name, port = parse_tensor_name(text)
    while name in by_name and by_name[name].op == "Identity":
        name, port = parse_tensor_name(by_name[name].input[0])
    return by_name.get(name), port


def _list_written_items(body: function_pb2.FunctionDef) -> Iterator[tuple[int, tuple[str, int]]]:
    """Lists the elements that a body writes to TensorLists that it returns.

    Yields:
        The output number of the list, and the name and type of the element.
    """
    nodes = {node.name: node for node in body.node_def}
    for port, output in enumerate(body.signature.output_arg):
        node, _ = _skip_identities(body.ret[output.name], nodes)
        if node is not None and node.op in _WRITES:
            dtype = node.attr["element_dtype"].type
            if dtype not in _SIZELESS:
                yield port, (node.input[_WRITES[node.op]], dtype)


def _add_items(
    graph_def: tf.compat.v1.GraphDef,
    loop: _Node,
    body: function_pb2.FunctionDef,
    created: Mapping[int, _Node],
    items: Mapping[int, tuple[str, int]],
) -> dict[tuple[str, int], tuple[str, int]]:
    """Adds a call of the body that returns the elements which it writes to TensorLists.

    The lists are then created with the shapes of these elements.

    Returns:
        For each TensorList of integers that the loop returns, a tensor whose shape are these
        integers.
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
    for port, creator in created.items():
        # The shape of the list depends on the call, so the call gets a copy of the list.
        empty = graph_def.node.add()
        empty.CopyFrom(creator)
        empty.name = f"{loop.name}/tf_placer_list_{port}"
        call.input[port] = empty.name
    for number, (port, (text, dtype)) in enumerate(items.items()):
        function.signature.output_arg.add(name=f"item_{number}", type=dtype)
        function.ret[f"item_{number}"] = text
        call.attr["Tout"].list.type.append(dtype)
        shape = graph_def.node.add(name=f"{loop.name}/tf_placer_item_{port}", op="Shape")
        shape.input.append(f"{call.name}:{number}")
        shape.attr["T"].type = dtype
        shape.attr["out_type"].type = created[port].attr["shape_type"].type
        created[port].input[0] = shape.name
    values = {}
    for port, (text, dtype) in items.items():
        if dtype in _SHAPE_TYPES:
            # TensorFlow infers shapes, not values, so the value becomes the shape of a tensor.
            values[loop.name, port] = call.name, len(call.attr["Tout"].list.type)
            function.signature.output_arg.add(name=f"value_{port}", type=types_pb2.DT_INT32)
            function.ret[f"value_{port}"] = _add_tensor_of_shape(
                function, f"value_{port}", text, dtype
            )
            call.attr["Tout"].list.type.append(types_pb2.DT_INT32)
    return values


def _add_tensor_of_shape(
    function: function_pb2.FunctionDef, name: str, text: str, dtype: int
) -> str:
    """Adds a tensor to a function whose shape are the values of another; -1 is an unknown size."""
    with tf.Graph().as_default() as graph:
        # TensorFlow rejects shapes with sizes below -1.
        value = tf.compat.v1.placeholder(dtype, name="value")
        sizes = tf.reshape(tf.maximum(value, tf.constant(-1, dtype)), [-1])[:_MAX_RANK]
        tf.fill(sizes, 0, name="filled")
    prefix = f"tf_placer_{name}/"
    # Functions name outputs by their argument in the op definition.
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
    """Sets the element shape of a list of rows to the shape of a row."""
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
    """Adds a tensor with a number of rows, and returns its name."""
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
