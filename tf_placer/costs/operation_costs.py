"""What the operations of a graph cost, wherever that is known from."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["OperationCosts"]


@dataclasses.dataclass(frozen=True, eq=False)
class OperationCosts:
    """Seconds and bytes of the operations of a graph on the devices of a machine.

    Attributes:
        compute_secs: float64 [num_operations, num_devices], what each operation takes on each
            device; finite also where it has no kernel.
        temp_bytes: int64 [num_operations], what each holds beside its inputs and outputs while it
            runs.
        tensor_bytes: int64 [num_tensors], the size of each tensor.
        source: "analytic" or "profiled".
        unknown_sizes: descriptions of the tensors of which an unknown dimension counts as 1.
        unknown_loops: descriptions of the loops of which one iteration counts.
    """

    compute_secs: np.ndarray
    temp_bytes: np.ndarray
    tensor_bytes: np.ndarray
    source: str
    unknown_sizes: tuple[str, ...] = ()
    unknown_loops: tuple[str, ...] = ()
