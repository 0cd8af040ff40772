"""What a GraphDef says about its operations and edges, checked and as arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.devices import is_device_request
from graph_passes.errors import GraphError
from graph_passes.tensors import Tensors
from graph_passes.util.messages import quoted
from graph_passes.util.topological_order import find_cycle, topological_order

__all__ = [
    "Edges",
    "check_devices",
    "check_operation_types",
    "handle_edges",
    "order_operations",
    "read_edges",
]

# Tensors of these types are handles to state that lives on one device.
_HANDLE_TYPES = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_LOOP_BACK_EDGES = ("NextIteration", "RefNextIteration")


@dataclasses.dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph.

    Attributes:
        producers: int32 [num_edges], the operation that each data edge comes from; edges are
            sorted by consumer, then by input number.
        ports: int32 [num_edges], which of its outputs.
        consumers: int32 [num_edges], the operation that reads it.
        control: int32 [num_control_edges, 2], (operation before, operation after).
    """

    producers: np.ndarray
    ports: np.ndarray
    consumers: np.ndarray
    control: np.ndarray


def check_operation_types(graph_def: tf.compat.v1.GraphDef) -> None:
    """Makes sure that TensorFlow knows the type of every operation, those in functions included.

    Raises:
        GraphError: it does not.
    """
    known = {function.signature.name for function in graph_def.library.function}
    for node, where in _all_nodes(graph_def):
        if node.op in known:
            continue
        if op_def_registry.get(node.op) is None:
            raise GraphError(
                f"operation {quoted(node.name)}{where} has the type {quoted(node.op)}, which "
                f"TensorFlow {tf.__version__} does not know"
            )
        known.add(node.op)


def check_devices(graph_def: tf.compat.v1.GraphDef) -> None:
    """Makes sure that TensorFlow can read the device of every operation, also in functions.

    Raises:
        GraphError: it cannot; the message names the operation.
    """
    known: set[tuple[str, bool]] = set()
    for node, where in _all_nodes(graph_def):
        key = node.device, bool(where)
        if key in known:
            continue
        if not _can_read_device(*key):
            raise GraphError(
                f"operation {quoted(node.name)}{where} is on {quoted(node.device)}, which is no "
                "device, as '/job:worker/task:1/device:GPU:0' is: clear the graph's devices "
                "(--clear_devices), or mend it"
            )
        known.add(key)


def _can_read_device(device: str, is_in_function: bool) -> bool:
    if not is_device_request(device):
        return False
    try:
        # TensorFlow's importer reads the devices of operations in Python, more strictly.
        if not is_in_function:
            tf.DeviceSpec.from_string(device)
    except ValueError:
        return False
    return True


def _all_nodes(
    graph_def: tf.compat.v1.GraphDef,
) -> Iterator[tuple[tf.compat.v1.NodeDef, str]]:
    """Lists all operations, those of functions with words that name the function."""
    for node in graph_def.node:
        yield node, ""
    for function in graph_def.library.function:
        where = f" of the function {quoted(function.signature.name)}"
        for node in function.node_def:
            yield node, where


def read_edges(graph_def: tf.compat.v1.GraphDef, index: Mapping[str, int]) -> Edges:
    """Reads the edges.

    Args:
        graph_def: the graph.
        index: the number of each operation, by name.

    Raises:
        GraphError: an operation reads what does not exist.
    """
    producers, ports, consumers, control = [], [], [], []
    for consumer, node in enumerate(graph_def.node):
        for text in node.input:
            name, colon, port = text.partition(":")
            is_control = name.startswith("^")
            producer = index.get(name[1:] if is_control else name)
            # No operation has outputs beyond nine digits.
            if producer is None or (colon and not (port.isdecimal() and len(port) < 10)):
                raise GraphError(f"operation {node.name!r} reads {text!r}, which does not exist")
            if is_control:
                control.append((producer, consumer))
            else:
                producers.append(producer)
                ports.append(int(port) if colon else 0)
                consumers.append(consumer)
    return Edges(
        np.array(producers, np.int32),
        np.array(ports, np.int32),
        np.array(consumers, np.int32),
        np.array(control, np.int32).reshape(-1, 2),
    )


def order_operations(graph_def: tf.compat.v1.GraphDef, edges: Edges) -> np.ndarray:
    """Finds a topological order; the edges that close a while loop do not count.

    Args:
        graph_def: the graph.
        edges: its edges.

    Returns:
        int32 [num_operations], depth first: a path as far as it goes before the next is begun.

    Raises:
        GraphError: there is none; the message names the operations of a cycle.
    """
    closes_loop = np.array([node.op in _LOOP_BACK_EDGES for node in graph_def.node], bool)
    forward = ~closes_loop[edges.producers]
    read = np.stack([edges.producers[forward], edges.consumers[forward]], axis=1)
    live = np.concatenate([read, edges.control])
    order = topological_order(len(graph_def.node), live, "newest")
    if len(order) < len(graph_def.node):
        cycle = [repr(graph_def.node[i].name) for i in find_cycle(len(graph_def.node), live)]
        shown = cycle if len(cycle) <= 5 else [*cycle[:4], "..."]
        raise GraphError(f"the graph has a cycle through {' -> '.join([*shown, cycle[0]])}")
    return order


def handle_edges(
    graph_def: tf.compat.v1.GraphDef,
    tensors: Tensors,
    edge_tensor: np.ndarray,
    edge_consumer: np.ndarray,
) -> np.ndarray:
    """Finds the edges that carry state: what they tie cannot be on two devices.

    Args:
        graph_def: the graph.
        tensors: its tensors.
        edge_tensor: int32 [num_edges], the tensor that each data edge carries.
        edge_consumer: int32 [num_edges], the operation that reads it, sorted.

    Returns:
        bool [num_edges], true for resources, variants, and references that are taken as such.
    """
    is_handle = np.isin(tensors.dtypes[edge_tensor], _HANDLE_TYPES)
    # A reference that the consumer only reads is copied like any tensor; one that it may write
    # is not.
    for consumer in np.unique(edge_consumer[tensors.is_reference[edge_tensor]]).tolist():
        takes_ref = _reference_inputs(graph_def.node[consumer])
        first = int(np.searchsorted(edge_consumer, consumer))
        for number, takes in enumerate(takes_ref):
            if takes:
                is_handle[first + number] = True
    return is_handle


def _reference_inputs(node: tf.compat.v1.NodeDef) -> list[bool]:
    """Says for each input of an operation whether it wants a reference."""
    op_def = op_def_registry.get(node.op)
    flags: list[bool] = []
    for arg in op_def.input_arg if op_def is not None else ():
        # Looking up an attribute that is not there would add it to the node.
        attr = arg.number_attr or arg.type_list_attr
        if not attr or attr not in node.attr:
            count = 1
        elif arg.number_attr:
            count = node.attr[attr].i
        else:
            count = len(node.attr[attr].list.type)
        flags += [arg.is_ref] * count
    return flags
