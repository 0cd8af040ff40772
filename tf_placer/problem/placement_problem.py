"""The placement problem: what there is to place, on what, and what everything costs."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from graph_passes.util.topological_order import topological_order
from tf_placer.machines.machine import Link
from tf_placer.problem.problem_checks import check_problem, float_array, int_array
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


@dataclasses.dataclass(frozen=True)
class ProblemDevice:
    """Something that runs operations.

    Attributes:
        name: unique.
        kind: what it is, such as "CPU", "GPU" or "K80".
        memory_bytes: what its operations may hold at once.
        slots: how many operations it runs at a time.
        transfer_share: share of the time of the bytes of every transfer from or to it that its
            operations lose, as on a CPU that copies with the core that it computes on.
        transfer_overhead_secs: what they lose to it beside that, whatever its bytes, if the device
            had no other transfer for 10 ms; less if it had one.
        is_asynchronous: whether it is handed operations before their inputs are computed, as a GPU
            is, and runs them in that order. It has one slot and loses nothing to transfers.
    """

    name: str
    kind: str
    memory_bytes: int
    slots: int = 1
    transfer_share: float = 0.0
    transfer_overhead_secs: float = 0.0
    is_asynchronous: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Operations, tensors, devices and links, free of TensorFlow.

    A problem that exists is sound: everything is checked and brought to the types below. Arrays
    are copies, and read-only.

    Attributes:
        devices: the devices.
        links: one for each ordered pair of devices.
        operation_names: the name of each operation, for people.
        compute_secs: float64 [num_operations, num_devices], what each operation takes on each
            device, in seconds; infinite where it may not go.
        resident_bytes: int64 [num_operations], what each holds on its device for the whole step.
        temp_bytes: int64 [num_operations], what each holds beside that while it runs.
        groups: int32 [num_operations], the group of each operation. A placer decides on one device
            per group.
        tensor_producers: int32 [num_tensors], the operation that makes each tensor.
        tensor_bytes: int64 [num_tensors], its size where it is sent to.
        consumer_start: int32 [num_tensors + 1]: tensor t is read by the operations
            `consumers[consumer_start[t] : consumer_start[t + 1]]`.
        consumers: int32 [num_reads], see above.
        control_edges: int32 [num_control_edges, 2], (operation before, operation after).
        local_bytes: int64 [num_tensors], what each tensor holds where it was made, at most its
            size; less where it shares the memory of something else, as what was read from a
            variable does. The sizes if not given.
        coarse_groups: int32 [num_operations], the coarse group of each operation, or None. Groups
            of one coarse group belong together: placers that decide about few things place them as
            one, others may do so at first.
        layers: int32 [num_operations], the layer of the model that each operation is of, from the
            inputs to the outputs, or None. All of a group, and of a coarse group, is of one layer.
        operation_types: the type of each operation, such as "MatMul", for people; or None.

    Raises:
        ProblemError: something is wrong; the message names it as the file format does.
    """

    devices: tuple[ProblemDevice, ...]
    links: tuple[Link, ...]
    operation_names: tuple[str, ...]
    compute_secs: np.ndarray
    resident_bytes: np.ndarray
    temp_bytes: np.ndarray
    groups: np.ndarray
    tensor_producers: np.ndarray
    tensor_bytes: np.ndarray
    consumer_start: np.ndarray
    consumers: np.ndarray
    control_edges: np.ndarray
    local_bytes: np.ndarray = None  # type: ignore[assignment]
    coarse_groups: np.ndarray | None = None
    layers: np.ndarray | None = None
    operation_types: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "links", "operation_names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.operation_types is not None:
            object.__setattr__(self, "operation_types", tuple(self.operation_types))
        # An empty list has no second dimension.
        if not np.size(self.control_edges):
            object.__setattr__(self, "control_edges", np.zeros([0, 2], np.int64))
        if self.local_bytes is None:
            object.__setattr__(self, "local_bytes", self.tensor_bytes)  # type: ignore[unreachable]
        whole_numbers = dict(_WHOLE_NUMBERS)
        for name in ("coarse_groups", "layers"):
            if getattr(self, name) is not None:
                whole_numbers[name] = np.int32
        # Checked while they are wide, so that an index beyond int32 is named as it was given.
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

    @property
    def num_operations(self) -> int:
        """How many operations there are."""
        return len(self.operation_names)

    @property
    def num_devices(self) -> int:
        """How many devices there are."""
        return len(self.devices)

    @property
    def num_tensors(self) -> int:
        """How many tensors there are."""
        return len(self.tensor_producers)

    @functools.cached_property
    def num_groups(self) -> int:
        """How many groups there are: one more than the highest number."""
        return int(self.groups.max(initial=-1)) + 1

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """int32 [num_edges, 2], (before, after) of each read of a tensor and each control edge."""
        producers = np.repeat(self.tensor_producers, np.diff(self.consumer_start))
        reads = np.stack([producers, self.consumers], axis=1)
        return np.concatenate([reads, self.control_edges]).astype(np.int32)

    @functools.cached_property
    def order(self) -> np.ndarray:
        """int32 [num_operations], a topological order; of what can come next, the lowest index."""
        return topological_order(self.num_operations, self.edges)
