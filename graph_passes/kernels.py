"""Lookup of the device types that have a kernel for an operation.

Kernels come from the registry of the running TensorFlow. A TensorFlow without GPU support registers
no GPU kernels, so these come from a table of the CUDA build that ships with this package.
`python -m graph_passes.kernels OUTPUT` writes this table from the running TensorFlow.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

import tensorflow as tf
from tensorflow.core.framework import kernel_def_pb2, types_pb2
from tensorflow.python.framework import kernels, op_def_registry

from graph_passes.functions import FunctionLibrary

__all__ = ["Constraints", "KernelTable", "condense", "format_table", "list_registered_kernels"]

# A kernel: the accepted values of each attribute that it constrains. Types are given by name, such
# as "DT_FLOAT".
Constraints = dict[str, frozenset[str | int]]
# The values of an attribute of one operation.
_Values = tuple[str | int, ...]

_TABLE = "gpu_kernels.json"
# Kernels of this type serve every device without a more specific kernel.
_DEFAULT_DEVICE = "DEFAULT"
_TYPE_NAMES = {number: name for name, number in types_pb2.DataType.items()}


class KernelTable:
    """The device types that have kernels for operations.

    A function call, and an operation with functions (While, If, PartitionedCall and the like), can
    run on a type of device if all operations of its functions can.
    """

    def __init__(
        self,
        graph_def: tf.compat.v1.GraphDef,
        constraints: Mapping[str, Mapping[str, Sequence[Constraints]]] | None = None,
    ) -> None:
        """Makes a table for the operations of one graph.

        Args:
            graph_def: the graph, for its function library.
            constraints: the kernels by device type and operation type. By default those of the
                running TensorFlow and, if it has no GPU support, of the shipped table.
        """
        self._functions = FunctionLibrary(graph_def)
        self._kernels = constraints if constraints is not None else _find_kernels()
        self._attributes: dict[str, tuple[str, ...]] = {}
        self._types_of_operations: dict[tuple[str, tuple[_Values, ...]], frozenset[str]] = {}
        self._types_of_functions: dict[str, frozenset[str]] = {}

    @property
    def device_types(self) -> tuple[str, ...]:
        """The device types in the table, sorted."""
        return tuple(sorted(self._kernels))

    def supports(self, node: tf.compat.v1.NodeDef, device_type: str) -> bool:
        """Returns whether a device of a type can run an operation.

        Args:
            node: the operation; only its type and attributes matter.
            device_type: such as "CPU" or "GPU".

        Returns:
            True if there is a kernel for it and for everything in the functions it calls.
        """
        return device_type in self.find_device_types(node)

    def find_device_types(self, node: tf.compat.v1.NodeDef) -> frozenset[str]:
        """Finds the device types that can run an operation.

        Args:
            node: the operation; only its type and attributes matter.

        Returns:
            The device types for which `supports` returns true.
        """
        found = self._find_types_with_kernel(node)
        for name in self._functions.find_all_callees(node):
            found &= self._find_types_for_function(name)
        return found

    def _find_types_for_function(self, function: str) -> frozenset[str]:
        if function not in self._types_of_functions:
            found = frozenset(self._kernels if function in self._functions else ())
            for node in self._functions.body(function):
                found &= self._find_types_with_kernel(node)
            self._types_of_functions[function] = found
        return self._types_of_functions[function]

    def _find_types_with_kernel(self, node: tf.compat.v1.NodeDef) -> frozenset[str]:
        op_type = node.op
        if op_type in self._functions:
            return frozenset(self._kernels)
        # Many operations have the same type and attributes, so the result is cached.
        names = self._list_constrained_attributes(op_type)
        key = (op_type, tuple(_attribute_values(node, name) for name in names))
        if key not in self._types_of_operations:
            values = dict(zip(names, key[1], strict=True))
            self._types_of_operations[key] = frozenset(
                device_type
                for device_type, kernels_of in self._kernels.items()
                if any(
                    all(allowed.issuperset(values[name]) for name, allowed in kernel.items())
                    for kernel in kernels_of.get(op_type, ())
                )
            )
        return self._types_of_operations[key]

    def _list_constrained_attributes(self, op_type: str) -> tuple[str, ...]:
        """Lists the attributes that the kernels of an operation type constrain."""
        if op_type not in self._attributes:
            of_type = [kernels_of.get(op_type, ()) for kernels_of in self._kernels.values()]
            names = {name for kernels_of in of_type for kernel in kernels_of for name in kernel}
            self._attributes[op_type] = tuple(sorted(names))
        return self._attributes[op_type]


def _attribute_values(node: tf.compat.v1.NodeDef, name: str) -> _Values:
    """Reads the values of an attribute: several for a list, none if the caller determines it."""
    value = node.attr[name] if name in node.attr else _attribute_defaults(node.op).get(name)
    if value is None:
        return ()
    kind = value.WhichOneof("value")
    if kind == "type":
        return (_type_name(value.type),)
    if kind == "list":
        return tuple(_type_name(number) for number in value.list.type)
    if kind == "s":
        return (value.s.decode(errors="replace"),)
    return (getattr(value, kind),) if kind in ("i", "b") else ()


def _type_name(number: int) -> str:
    return _TYPE_NAMES.get(number, f"type {number}")


@functools.cache
def _attribute_defaults(op_type: str) -> dict[str, tf.compat.v1.AttrValue]:
    op_def = op_def_registry.get(op_type)
    return {
        attr.name: attr.default_value
        for attr in (op_def.attr if op_def is not None else ())
        if attr.HasField("default_value")
    }


def list_registered_kernels(device_type: str) -> dict[str, list[Constraints]]:
    """Lists the kernels of the running TensorFlow for a type of device.

    Args:
        device_type: such as "CPU" or "GPU".

    Returns:
        The kernels by operation type, including kernels for any device.
    """
    found: dict[str, list[Constraints]] = {}
    for kernel in _registry():
        # Kernels with a label serve only operations that request this label.
        if kernel.device_type in (device_type, _DEFAULT_DEVICE) and not kernel.label:
            found.setdefault(kernel.op, []).append(
                {c.name: _to_constraint(c) for c in kernel.constraint}
            )
    return {
        op_type: condense(found[op_type], _list_attributes(op_type)) for op_type in sorted(found)
    }


def _to_constraint(constraint: kernel_def_pb2.KernelDef.AttrConstraint) -> frozenset[str | int]:
    values = constraint.allowed_values.list
    types = (_type_name(number) for number in values.type)
    strings = (value.decode(errors="replace") for value in values.s)
    return frozenset([*types, *strings, *values.i, *values.b])


def _list_attributes(op_type: str) -> set[str]:
    op_def = op_def_registry.get(op_type)
    return {a.name for a in (op_def.attr if op_def is not None else ()) if "list" in a.type}


def condense(
    constraints: Iterable[Constraints], list_attributes: Collection[str] = ()
) -> list[Constraints]:
    """Merges kernels that differ in only one attribute.

    Args:
        constraints: the kernels of one operation type.
        list_attributes: the attributes with several values. Kernels that differ in one are not
            merged, because the result would accept lists that none of them accepts.

    Returns:
        Fewer kernels that accept the same operations.

    Example:
        >>> condense([{"T": frozenset(["DT_HALF"])}, {"T": frozenset(["DT_FLOAT"])}]) == [
        ...     {"T": frozenset(["DT_HALF", "DT_FLOAT"])}
        ... ]
        True
    """
    different = {frozenset(kernel.items()): dict(kernel) for kernel in constraints}
    merged_kernels = list(different.values())
    for name in sorted(
        {name for kernel in merged_kernels for name in kernel} - set(list_attributes)
    ):
        merged: dict[tuple[object, ...], Constraints] = {}
        for kernel in merged_kernels:
            others = frozenset((k, v) for k, v in kernel.items() if k != name)
            same = merged.setdefault((name in kernel, others), kernel)
            if name in kernel:
                same[name] = same[name] | kernel[name]
        merged_kernels = list(merged.values())
    return merged_kernels


@functools.cache
def _registry() -> tuple[kernel_def_pb2.KernelDef, ...]:
    return tuple(kernels.get_all_registered_kernels().kernel)


@functools.cache
def _find_kernels() -> dict[str, dict[str, list[Constraints]]]:
    has_gpu = tf.test.is_built_with_gpu_support()
    gpu = list_registered_kernels("GPU") if has_gpu else _read_gpu_kernels()
    return {"CPU": list_registered_kernels("CPU"), "GPU": gpu}


def _read_gpu_kernels() -> dict[str, list[Constraints]]:
    file = importlib.resources.files("graph_passes") / "data" / _TABLE
    table = json.loads(file.read_text(encoding="utf-8"))["kernels"]
    return {
        op_type: [{name: frozenset(values) for name, values in k.items()} for k in constraints]
        for op_type, constraints in table.items()
    }


def format_table(constraints: Mapping[str, Sequence[Constraints]], source: str) -> str:
    """Formats kernels as the text of a kernel table file.

    Args:
        constraints: the kernels by operation type.
        source: the TensorFlow that they come from.

    Returns:
        JSON with one operation type per line.
    """
    lines = []
    for op_type in sorted(constraints):
        rows = [{name: sorted(k[name]) for name in sorted(k)} for k in constraints[op_type]]
        lines.append(f"{json.dumps(op_type)}: {json.dumps(sorted(rows, key=json.dumps))}")
    body = ",\n".join(lines)
    return f'{{"format": 1, "source": {json.dumps(source)}, "kernels": {{\n{body}\n}}}}\n'


def _write_table(path: str) -> None:
    build = "CUDA" if tf.test.is_built_with_cuda() else "CPU"
    text = format_table(
        list_registered_kernels("GPU"), f"TensorFlow {tf.__version__}, {build} build"
    )
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m graph_passes.kernels OUTPUT.json")
    _write_table(sys.argv[1])
