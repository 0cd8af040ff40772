"""The pass by which tensors wait on the CPU for their later readers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import op_def_registry

from graph_passes.errors import GraphError
from graph_passes.graph_pass import GraphPass
from graph_passes.op_graph import OpGraph
from graph_passes.unconditional import find_unconditional
from graph_passes.util.messages import quote

__all__ = ["HANDLE_TYPES", "AddHostCopies", "HostCopy", "find_copyable"]

# Grappler removes an Identity between devices, and so would undo the pass. StopGradient has the
# same kernel, and stays.
_COPY = "StopGradient"
_LEFT, _BACK = "to_host", "from_host"
# Operations whose output shares memory with their first input.
_ALIASES = frozenset(
    [
        *("Identity", "Reshape", "ExpandDims", "Squeeze", "StopGradient", "PreventGradient"),
        *("Snapshot", "CheckNumerics"),
    ]
)
HANDLE_TYPES = frozenset([types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT, types_pb2.DT_STRING])
"""The types of tensors that hold references to memory elsewhere, which a copy does not move."""


@dataclasses.dataclass(frozen=True)
class HostCopy:
    """A tensor that waits on the CPU for some of its readers.

    Attributes:
        tensor: its name, "operation:port".
        readers: the names of the operations that read the copy.
        gates: the names of operations that wait until the tensor has left. Without them, a GPU is
            handed operations far ahead, and allocates their memory before.
        trigger: the name of the operation after which the copy begins its way back.
        host: the device of the copy, "/job:localhost/replica:0/task:0/device:CPU:0".
    """

    tensor: str
    readers: tuple[str, ...]
    gates: tuple[str, ...]
    trigger: str
    host: str


def find_copyable(graph: OpGraph) -> np.ndarray:
    """Finds the operations that may make or read a copied tensor, wait for it, or trigger it.

    These are operations without state; none of a conditional or loop, and none that follow one,
    because they may not run; and none whose output is the memory of a reference variable, because
    a copy of it would miss a later update.

    Returns:
        bool [num_operations].
    """
    stateful = np.array([_is_stateful(name) for name in graph.type_names], np.bool_)[graph.types]
    is_free = find_unconditional(graph) & ~stateful & ~_find_references(graph)
    copyable: np.ndarray = is_free & graph.needed
    return copyable


class AddHostCopies(GraphPass):
    """A pass that inserts copies on the CPU, which their readers wait for.

    Values are the same to the last bit, because a copy computes nothing. The GPU frees a tensor as
    soon as the copy has left and its other readers have run.
    """

    def __init__(self, copies: Sequence[HostCopy]) -> None:
        """Stores the copies."""
        self._copies = tuple(copies)

    def run(self, graph_def: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
        """Inserts the copies; see `GraphPass.run`.

        Raises:
            GraphError: an operation is missing, has state, is in control flow, or does not read the
                tensor; the tensor is a handle; or an operation would wait for itself.
        """
        if not self._copies:
            return graph_def
        graph = OpGraph.from_graph_def(graph_def)
        copyable = find_copyable(graph)
        copied = tf.compat.v1.GraphDef()
        copied.CopyFrom(graph_def)
        taken = set(graph.names)
        for copy in self._copies:
            tensor = graph.tensor_index(copy.tensor)
            producer = graph.names[graph.tensor_producer[tensor]]
            port = tensor - int(graph.output_start[graph.tensor_producer[tensor]])
            for name in (producer, copy.trigger, *copy.gates, *copy.readers):
                if name not in graph.index:
                    raise GraphError(f"the graph has no operation {quote(name)} to copy for")
                if not copyable[graph.index[name]]:
                    raise GraphError(
                        f"{quote(name)} has state, is a variable or depends on control flow, so it "
                        "can take no part in copies to the CPU"
                    )
            if graph.tensor_dtypes[tensor] in HANDLE_TYPES:
                raise GraphError(f"{quote(copy.tensor)} is a handle, which cannot wait on the CPU")
            names = {f"{producer}:{port}", *([producer] if not port else [])}
            source = f"{producer}:{port}" if port else producer
            dtype = int(graph.tensor_dtypes[tensor])
            left = _make_name(f"{producer}/{_LEFT}", taken)
            back = _make_name(f"{producer}/{_BACK}", taken)
            for name, inputs in ((left, [source]), (back, [left, f"^{copy.trigger}"])):
                node = copied.node.add(name=name, op=_COPY, device=copy.host, input=inputs)
                node.attr["T"].type = dtype
            for gate in copy.gates:
                copied.node[graph.index[gate]].input.append(f"^{left}")
            for reader in copy.readers:
                read = copied.node[graph.index[reader]].input
                if not names & set(read):
                    raise GraphError(f"{quote(reader)} does not read {quote(copy.tensor)}")
                read[:] = [back if each in names else each for each in read]
        # Check for cycles.
        OpGraph.from_graph_def(copied)
        return copied


def _find_references(graph: OpGraph) -> np.ndarray:
    """Finds the operations whose outputs are the memory of reference variables."""
    found = np.array([_returns_reference(name) for name in graph.type_names], np.bool_)[graph.types]
    shares = graph.has_type(_ALIASES)
    for i in graph.order[shares[graph.order]].tolist():
        found[i] |= bool(found[graph.producers[i][:1]].any())
    return found


def _returns_reference(op_type: str) -> bool:
    definition = op_def_registry.get(op_type)
    return definition is not None and _has_references(definition.output_arg)


def _make_name(name: str, taken: set[str]) -> str:
    """Makes a name that is not taken, and takes it."""
    numbered = (name if not number else f"{name}_{number}" for number in range(len(taken) + 1))
    free = next(each for each in numbered if each not in taken)
    taken.add(free)
    return free


def _is_stateful(op_type: str) -> bool:
    definition = op_def_registry.get(op_type)
    return (
        definition is None
        or definition.is_stateful
        or _has_references([*definition.input_arg, *definition.output_arg])
    )


def _has_references(arguments: Iterable[object]) -> bool:
    return any(getattr(argument, "is_ref", False) for argument in arguments)
