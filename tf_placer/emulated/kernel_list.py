"""Lists the kernels of the CUDA build of TensorFlow in the format of `data/cuda_kernels.tsv`.

`python -m tf_placer.emulated.kernel_list` prints such a list, in a TensorFlow that was built with
CUDA. The current list was made differently: it comes from a table of the CUDA wheel of TensorFlow
2.21 that has only kernels of type GPU. The int32 kernels that the wheel registers for any device
are added by convention, with all arguments in host memory.
"""

from __future__ import annotations

from collections.abc import Iterable

from tensorflow.core.framework import kernel_def_pb2, types_pb2
from tensorflow.python.framework import kernels

from graph_passes.kernels import Constraints, condense

__all__ = ["list_kernels"]

_GPU = ("GPU", "DEFAULT")
# Kernels with different host arguments need separate lines.
_HOST = " host arguments"


def list_kernels(registered: Iterable[kernel_def_pb2.KernelDef]) -> list[str]:
    """Lists the kernels of GPUs: operation, types by attribute, and arguments in host memory.

    Args:
        registered: the kernels of all devices.

    Returns:
        Sorted lines of three fields, separated by tabs; kernels that differ only in the types of
        one attribute share a line.
    """
    found: dict[str, list[Constraints]] = {}
    for kernel in registered:
        # A kernel with a label serves only operations that request the label.
        if kernel.device_type not in _GPU or kernel.label:
            continue
        types: Constraints = {
            constraint.name: frozenset(
                types_pb2.DataType.Name(each) for each in constraint.allowed_values.list.type
            )
            for constraint in kernel.constraint
            if constraint.allowed_values.list.type
        }
        types[_HOST] = frozenset(kernel.host_memory_arg)
        found.setdefault(kernel.op, []).append(types)
    lines = []
    for op_type, of_type in found.items():
        for types in condense(of_type, [_HOST]):
            host = ",".join(sorted(map(str, types.pop(_HOST))))
            fields = (f"{name}={','.join(sorted(map(str, types[name])))}" for name in sorted(types))
            lines.append(f"{op_type}\t{';'.join(fields)}\t{host}")
    return sorted(lines)


if __name__ == "__main__":
    print("\n".join(list_kernels(kernels.get_all_registered_kernels().kernel)))
