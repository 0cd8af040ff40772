"""Validation of a GraphDef, and reading of its edges and their order into arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.clearing_advice import advise_clearing
from graph_passes.devices import is_device_request
from graph_passes.errors import GraphError
from graph_passes.tensors import Tensors
from graph_passes.util.messages import quote
from graph_passes.util.topological_order import find_cycle, topological_order

__all__ = [
    "Edges",
    "check_devices",
    "check_operation_types",
    "find_handle_edges",
    "order_operations",
    "read_edges",
]

# Types of handles to state, which lives on one device.
_HANDLE_TYPES = (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)
_LOOP_BACK_EDGES = ("NextIteration", "RefNextIteration")


@dataclasses.dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a graph.

    Attributes:
        producers: int32 [num_edges], the operation at the start of each data edge; edges are
            sorted by consumer, then by input number.
        ports: int32 [num_edges], the output number of the producer.
        consumers: int32 [num_edges], the operation at the end of each data edge.
        control: int32 [num_control_edges, 2], (operation before, operation after).
    """

    producers: np.ndarray
    ports: np.ndarray
    consumers: np.ndarray
    control: np.ndarray


def check_operation_types(graph_def: tf.compat.v1.GraphDef) -> None:
    """Checks that TensorFlow knows the type of every operation, also in functions.

    Raises:
        GraphError: a type is unknown; the message names the operation.
    """
    known = {function.signature.name for function in graph_def.library.function}
    for node, where in _iterate_nodes(graph_def):
        if node.op in known:
            continue
        if op_def_registry.get(node.op) is None:
            raise GraphError(
                f"operation {quote(node.name)}{where} has the type {quote(node.op)}, which "
                f"TensorFlow {tf.__version__} does not know"
            )
        known.add(node.op)


def check_devices(graph_def: tf.compat.v1.GraphDef) -> None:
    """Checks that TensorFlow can parse the device of every operation, also in functions.

    Raises:
        GraphError: a device is invalid; the message names the operation.
    """
    known: set[tuple[str, bool]] = set()
    for node, where in _iterate_nodes(graph_def):
        key = node.device, bool(where)
        if key in known:
            continue
        if not _can_read_device(*key):
            raise GraphError(
                f"operation {quote(node.name)}{where} is on {quote(node.device)}, which is no "
                "device, as '/job:worker/task:1/device:GPU:0' is: "
                f"{advise_clearing()}, or correct it"
            )
        known.add(key)


def _can_read_device(device: str, is_in_function: bool) -> bool:
    if not is_device_request(device):
        return False
    try:
        # For operations outside functions, TensorFlow's importer also uses this stricter parser.
        if not is_in_function:
            tf.DeviceSpec.from_string(device)
    except ValueError:
        return False
    return True


def _iterate_nodes(
    graph_def: tf.compat.v1.GraphDef,
) -> Iterator[tuple[tf.compat.v1.NodeDef, str]]:
    """Lists all operations, those of functions with a phrase that names the function."""
    for node in graph_def.node:
        yield node, ""
    for function in graph_def.library.function:
        where = f" of the function {quote(function.signature.name)}"
        for node in function.node_def:
            yield node, where


def read_edges(graph_def: tf.compat.v1.GraphDef, index: Mapping[str, int]) -> Edges:
    """Reads the edges of a graph.

    Args:
        graph_def: the graph.
        index: the number of each operation, by name.

    Raises:
        GraphError: an input does not exist.
    """
    producers, ports, consumers, control = [], [], [], []
    for consumer, node in enumerate(graph_def.node):
        for text in node.input:
            name, colon, port = text.partition(":")
            is_control = name.startswith("^")
            producer = index.get(name[1:] if is_control else name)
            # Output numbers of ten digits may overflow int32.
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
    """Sorts operations topologically, ignoring the edges that close a while loop.

    Args:
        graph_def: the graph.
        edges: its edges.

    Returns:
        int32 [num_operations], depth first: each path is followed to its end before the next.

    Raises:
        GraphError: there is a cycle; the message names its operations.
    """
    closes_loop = np.array([node.op in _LOOP_BACK_EDGES for node in graph_def.node], bool)
    forward = ~closes_loop[edges.producers]
    read = np.stack([edges.producers[forward], edges.consumers[forward]], axis=1)
    live = np.concatenate([read, edges.control])
    order = topological_order(len(graph_def.node), live, "newest")
    if len(order) < len(graph_def.node):
        cycle = [repr(graph_def.node[i].name) for i in find_cycle(len(graph_def.node), live)]
        path = cycle if len(cycle) <= 5 else [*cycle[:4], "..."]
        raise GraphError(f"the graph has a cycle through {' -> '.join([*path, cycle[0]])}")
    return order


def find_handle_edges(
    graph_def: tf.compat.v1.GraphDef,
    tensors: Tensors,
    edge_tensor: np.ndarray,
    edge_consumer: np.ndarray,
) -> np.ndarray:
    """Finds the edges that carry handles to state, whose ends must share a device.

    Args:
        graph_def: the graph.
        tensors: its tensors.
        edge_tensor: int32 [num_edges], the tensor that each data edge carries.
        edge_consumer: int32 [num_edges], the operation that reads it, sorted.

    Returns:
        bool [num_edges], true for resources, variants, and references passed by reference.
    """
    is_handle = np.isin(tensors.dtypes[edge_tensor], _HANDLE_TYPES)
    # A consumer that only reads a reference gets a copy, as of any tensor; only a consumer that may
    # write must be on the same device.
    for consumer in np.unique(edge_consumer[tensors.is_reference[edge_tensor]]).tolist():
        is_reference_input = _find_reference_inputs(graph_def.node[consumer])
        first = int(np.searchsorted(edge_consumer, consumer))
        for number, takes in enumerate(is_reference_input):
            if takes:
                is_handle[first + number] = True
    return is_handle


def _find_reference_inputs(node: tf.compat.v1.NodeDef) -> list[bool]:
    """Returns for each input of an operation whether it is a reference."""
    op_def = op_def_registry.get(node.op)
    flags: list[bool] = []
    for arg in op_def.input_arg if op_def is not None else ():
        # The check comes first because looking up a missing attribute would add it to the node.
        attr = arg.number_attr or arg.type_list_attr
        if not attr or attr not in node.attr:
            count = 1
        elif arg.number_attr:
            count = node.attr[attr].i
        else:
            count = len(node.attr[attr].list.type)
        flags += [arg.is_ref] * count
    return flags
