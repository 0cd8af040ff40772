"""The compute times and sizes of the operations of a graph."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["OperationCosts"]


@dataclasses.dataclass(frozen=True, eq=False)
class OperationCosts:
    """Seconds and bytes of the operations of a graph on the devices of a machine.

    Attributes:
        compute_secs: float64 [num_operations, num_devices], seconds of each operation on each
            device; finite also where it has no kernel.
        temp_bytes: int64 [num_operations], the memory that each operation holds while it runs,
            beside its inputs and outputs.
        tensor_bytes: int64 [num_tensors], the size of each tensor.
        source: "analytic" or "profiled".
        fixed_secs: float64 [num_operations, num_devices], the part of `compute_secs` that does not
            depend on the batch; None if it is not known.
        unknown_sizes: descriptions of the tensors with an unknown dimension, which counts as 1.
        unknown_loops: descriptions of the loops with an unknown number of iterations, which counts
            as 1.
    """

    compute_secs: np.ndarray
    temp_bytes: np.ndarray
    tensor_bytes: np.ndarray
    source: str
    fixed_secs: np.ndarray | None = None
    unknown_sizes: tuple[str, ...] = ()
    unknown_loops: tuple[str, ...] = ()
