"""The canonical form of a step, which depends neither on names nor on the order of a graph."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from graph_passes.colocation import ColocationGroups
from graph_passes.fingerprint import FunctionDigests, normalize_nodes
from graph_passes.op_graph import OpGraph
from graph_passes.renaming import copy_functions_by_position
from graph_passes.util.garbage_collection import pause_garbage_collection

__all__ = ["CanonicalForm", "find_canonical_form"]

# Colocation groups stand for the names among these. Random seeds change no step time.
_IGNORED_ATTRIBUTES = (
    *("_class", "container", "shared_name", "frame_name", "stack_name", "tensor_array_name"),
    *("_user_specified_name", "debug_name", "seed", "seed2"),
)
_CONSTANT, _VALUE = "Const", "value"
# The port of a fetch that is an operation.
_WHOLE = -1
_LABEL_BYTES = 8


@dataclasses.dataclass(frozen=True, eq=False)
class CanonicalForm:
    """The operations of a step in an order that follows from their structure.

    Attributes:
        digest: 64 hexadecimal digits. Steps of equal digests are isomorphic: operations at the same
            position correspond, with their inputs, their attributes, and their colocation groups.
        operations: int32 [num_step_operations], the operations in this order.
        labels: by position, 16 hexadecimal digits that depend on the operation and all that it is
            computed from, but not on the shapes of fed tensors. Operations may share a label.
    """

    digest: str
    operations: np.ndarray
    labels: tuple[str, ...]


@pause_garbage_collection()
def find_canonical_form(
    graph: OpGraph,
    colocation: ColocationGroups,
    roots: Sequence[str],
    feeds: Mapping[str, np.ndarray],
) -> CanonicalForm:
    """Finds the canonical form of a step, in time linear in the size of the graph.

    The form covers types, attributes, inputs in their order, control inputs as a set, given
    devices, colocation groups with their kernels and required devices, what is fetched, and types
    and shapes of the feeds. It leaves out names, the order of operations and of the roots, random
    seeds, and the values of constants that are neither integers nor booleans: these are data, such
    as a learning rate, and no shapes. Operations outside of the step do not count, except that they
    may pin a colocation group.

    Operations are numbered on a walk from the roots along their inputs. Roots and control inputs,
    which have no order, are sorted by hashes of what is before and after them; where these are
    equal, by their order in the graph. Such operations are usually symmetrical, so that any order
    gives the same form. If they are not, isomorphic graphs may have different forms.

    Args:
        graph: the graph.
        colocation: its colocation groups.
        roots: the names of the operations ("train") and tensors ("loss:0") that are fetched, and of
            operations that other threads of the step run.
        feeds: the fed values, by tensor name.
    """
    fed = {graph.tensor_index(name): value for name, value in feeds.items()}
    # A fed tensor that is fetched as well needs no operation.
    ends = {
        (graph.index[operation], int(port) if colon else _WHOLE)
        for operation, colon, port in (name.partition(":") for name in roots)
        if not colon or graph.tensor_index(f"{operation}:{port}") not in fed
    }
    starts = sorted({i for i, _ in ends})
    walk = _Walk(graph, fed)
    signatures = _sign_operations(graph.graph_def, walk.number_operations(starts, {}))
    labels = walk.refine_by_inputs(signatures)
    # Operations of equal inputs may have consumers that differ, and so may their inputs.
    unique = walk.refine_by_inputs(walk.refine_by_consumers(labels))
    starts.sort(key=unique.__getitem__)
    number = walk.number_operations(starts, unique)
    digest = hashlib.sha256()
    feed_number: dict[int, int] = {}
    group_number: dict[int, int] = {}
    legal = [colocation.legal[device_type] for device_type in sorted(colocation.legal)]
    for i in number:
        group = int(colocation.group[i])
        inputs = [
            ("feed", feed_number.setdefault(tensor, len(feed_number)))
            if tensor in fed
            else (number[producer], tensor - int(graph.output_start[producer]))
            for tensor, producer in walk.inputs(i)
        ]
        record: tuple[object, ...] = (
            signatures[i],
            inputs,
            sorted(number[control] for control in walk.controls[i]),
            group_number.setdefault(group, len(group_number)),
            bool(colocation.pinned[group]),
            [bool(runs[group]) for runs in legal],
        )
        # Added only where present, so that answers of earlier versions are still found.
        if group in colocation.required:
            record += (colocation.required[group],)
        digest.update(repr(record).encode())
    shapes = [(fed[tensor].dtype.name, fed[tensor].shape) for tensor in feed_number]
    fetched = sorted((number[i], port) for i, port in ends)
    digest.update(repr((fetched, shapes)).encode())
    return CanonicalForm(
        digest.hexdigest(),
        np.fromiter(number, np.int32, len(number)),
        tuple(labels[i].hex() for i in number),
    )


class _Walk:
    """Walks along the inputs of operations, which end at fed tensors."""

    def __init__(self, graph: OpGraph, fed: Mapping[int, np.ndarray]) -> None:
        self._graph, self._fed = graph, fed
        self._producers = graph.producers
        self._inputs = graph.input_tensors
        self._output_start = graph.output_start.tolist()
        self.controls: list[list[int]] = [[] for _ in graph.names]
        for before, after in graph.control_edges.tolist():
            self.controls[after].append(before)

    def inputs(self, operation: int) -> list[tuple[int, int]]:
        """Lists the tensors that an operation reads, in order, with their producers."""
        return list(zip(self._inputs[operation], self._producers[operation], strict=True))

    def number_operations(
        self, starts: Sequence[int], labels: Mapping[int, bytes]
    ) -> dict[int, int]:
        """Numbers the operations that some operations need, in the order of a walk.

        Args:
            starts: the operations to start from, in order.
            labels: labels by which control inputs are sorted.
        """
        number: dict[int, int] = {}
        stack = [*reversed(starts)]
        while stack:
            i = stack.pop()
            if i in number:
                continue
            number[i] = len(number)
            controls = self.controls[i]
            if len(controls) > 1 and labels:
                controls = sorted(controls, key=lambda control: (labels[control], control))
            stack += reversed(controls)
            stack += [p for tensor, p in reversed(self.inputs(i)) if tensor not in self._fed]
        return number

    def refine_by_inputs(self, labels: Mapping[int, bytes]) -> dict[int, bytes]:
        """Computes labels that depend on all operations before one.

        Args:
            labels: labels of the operations themselves.
        """
        # An edge that closes a loop has the former label of its producer.
        refined = {i: label[:_LABEL_BYTES] for i, label in labels.items()}
        for i in self._list_in_order(labels):
            digest = hashlib.blake2b(labels[i], digest_size=_LABEL_BYTES)
            for tensor, producer in self.inputs(i):
                if tensor in self._fed:
                    digest.update(b"feed")
                else:
                    port = tensor - self._output_start[producer]
                    digest.update(refined[producer] + port.to_bytes(4, "little"))
            for label in sorted(refined[control] for control in self.controls[i]):
                digest.update(label)
            refined[i] = digest.digest()
        return refined

    def refine_by_consumers(self, labels: Mapping[int, bytes]) -> dict[int, bytes]:
        """Computes labels that depend on all operations after one; see `refine_by_inputs`."""
        consumers: dict[int, list[tuple[int, bytes]]] = {i: [] for i in labels}
        for i in labels:
            for slot, (tensor, producer) in enumerate(self.inputs(i)):
                if tensor not in self._fed:
                    port = tensor - self._output_start[producer]
                    consumers[producer].append((i, b"%d,%d" % (port, slot)))
            for control in self.controls[i]:
                consumers[control].append((i, b""))
        refined = dict(labels)
        for i in reversed(self._list_in_order(labels)):
            digest = hashlib.blake2b(labels[i], digest_size=_LABEL_BYTES)
            for record in sorted(refined[consumer] + edge for consumer, edge in consumers[i]):
                digest.update(record)
            refined[i] = digest.digest()
        return refined

    def _list_in_order(self, operations: Mapping[int, bytes]) -> list[int]:
        return [i for i in self._graph.order.tolist() if i in operations]


def _sign_operations(
    graph_def: tf.compat.v1.GraphDef, operations: Mapping[int, int]
) -> dict[int, bytes]:
    """Computes a hash of the type, the device and the attributes of each operation."""
    functions = FunctionDigests(copy_functions_by_position(graph_def))
    plain = tf.compat.v1.NodeDef()
    signatures = {}
    for i in operations:
        node = graph_def.node[i]
        plain.CopyFrom(node)
        normalize_nodes([plain])
        for name in _IGNORED_ATTRIBUTES:
            if name in plain.attr:
                del plain.attr[name]
        if node.op == _CONSTANT:
            _clear_data(plain.attr[_VALUE].tensor)
        functions.rename(plain)
        plain.name, plain.device = "", node.device
        plain.ClearField("input")
        data = plain.SerializeToString(deterministic=True)
        signatures[i] = hashlib.blake2b(data, digest_size=16).digest()
    return signatures


def _clear_data(value: tensor_pb2.TensorProto) -> None:
    """Leaves only type and shape of a constant, unless shapes may follow from it."""
    dtype = tf.dtypes.as_dtype(value.dtype)
    if not (dtype.is_integer or dtype.is_bool):
        plain = tensor_pb2.TensorProto(dtype=value.dtype, tensor_shape=value.tensor_shape)
        value.CopyFrom(plain)
