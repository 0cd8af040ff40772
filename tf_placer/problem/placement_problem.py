"""The placement problem: operations to place, devices to place them on, and all costs."""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.problem_checks import check_problem, float_array, int_array
from tf_placer.problem.problem_columns import ProblemColumns
from tf_placer.problem.problem_device import ProblemDevice
from tf_placer.problem.problem_error import ProblemError

__all__ = ["PlacementProblem", "ProblemDevice", "ProblemError"]

_WHOLE_NUMBERS = {
    "resident_bytes": np.int64,
    "temp_bytes": np.int64,
    "groups": np.int32,
    "tensor_producers": np.int32,
    "tensor_bytes": np.int64,
    "consumer_start": np.int32,
    "consumers": np.int32,
    "control_edges": np.int32,
    "local_bytes": np.int64,
}


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class PlacementProblem(ProblemColumns):
    """A valid placement problem; `ProblemColumns` describes the fields.

    The constructor checks all values and converts them to the types of `ProblemColumns`. Arrays are
    copies, and read-only.

    Raises:
        ProblemError: a value is invalid; the message names its entry in the file format.
    """

    def __post_init__(self) -> None:
        for name in ("devices", "links", "operation_names", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.operation_types is not None:
            object.__setattr__(self, "operation_types", tuple(self.operation_types))
        if self.tensor_shapes is not None:
            object.__setattr__(self, "tensor_shapes", tuple(map(tuple, self.tensor_shapes)))
        # An empty list has no second dimension.
        if not np.size(self.control_edges):
            object.__setattr__(self, "control_edges", np.zeros([0, 2], np.int64))
        if self.local_bytes is None:
            object.__setattr__(self, "local_bytes", self.tensor_bytes)  # type: ignore[unreachable]
        whole_numbers = dict(_WHOLE_NUMBERS)
        for name in ("coarse_groups", "layers"):
            if getattr(self, name) is not None:
                whole_numbers[name] = np.int32
        # Convert to int64 first, so that a message about an index beyond int32 shows its value.
        for name in whole_numbers:
            object.__setattr__(self, name, int_array(name, getattr(self, name)))
        object.__setattr__(self, "compute_secs", float_array("compute_secs", self.compute_secs))
        check_problem(self)
        devices = tuple(
            dataclasses.replace(d, memory_bytes=int(d.memory_bytes), slots=int(d.slots))
            for d in self.devices
        )
        links = tuple(
            dataclasses.replace(
                link,
                latency_secs=float(link.latency_secs),
                bandwidth_bytes_per_sec=float(link.bandwidth_bytes_per_sec),
            )
            for link in self.links
        )
        object.__setattr__(self, "devices", devices)
        object.__setattr__(self, "links", links)
        for name, dtype in whole_numbers.items():
            object.__setattr__(self, name, getattr(self, name).astype(dtype))
        for name in ("compute_secs", "edges", "order", *whole_numbers):
            getattr(self, name).flags.writeable = False
