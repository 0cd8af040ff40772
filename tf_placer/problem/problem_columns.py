"""The columns of a placement problem, unchecked."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from graph_passes.util.topological_order import topological_order
from tf_placer.machines.machine import Link
from tf_placer.problem.problem_device import ProblemDevice

__all__ = ["ProblemColumns"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ProblemColumns:
    """Operations, tensors, devices and links in columns, free of TensorFlow.

    Attributes:
        devices: the devices.
        links: one for each ordered pair of devices.
        operation_names: the name of each operation, for people.
        compute_secs: float64 [num_operations, num_devices], the compute time of each operation on
            each device, in seconds; infinite where it may not go.
        resident_bytes: int64 [num_operations], the memory that each operation holds on its device
            for the whole step.
        temp_bytes: int64 [num_operations], the additional memory that each operation holds while it
            runs.
        groups: int32 [num_operations], the group of each operation. A placer chooses one device per
            group.
        tensor_producers: int32 [num_tensors], the operation that makes each tensor.
        tensor_bytes: int64 [num_tensors], the size of each tensor on devices that receive it.
        consumer_start: int32 [num_tensors + 1]: tensor t is read by the operations
            `consumers[consumer_start[t] : consumer_start[t + 1]]`.
        consumers: int32 [num_reads], the readers of tensor 0, then those of tensor 1, and so on.
        control_edges: int32 [num_control_edges, 2], (operation before, operation after).
        local_bytes: int64 [num_tensors], the memory of each tensor on the device that makes it, at
            most its size; less if it shares memory, as the value of a variable does. Default:
            `tensor_bytes`.
        coarse_groups: int32 [num_operations], the coarse group of each operation, or None. A coarse
            group consists of groups that belong together: some placers place it as one, others do
            so at first.
        layers: int32 [num_operations], the model layer of each operation, from the inputs to the
            outputs, or None. The operations of a group, and of a coarse group, have the same layer.
        operation_types: the type of each operation, such as "MatMul"; or None.
        batch_size: the number of examples in the batch of a step; None if unknown.
        graph_name: what people call the graph, such as "'train.meta'" or "the model 'resnet50'"; ""
            if that is not known.
        notes: sentences about the graph or the machine that are true of every plan.
        tensor_shapes: the shape of each tensor, with -1 for a dimension of unknown size, and () for
            a tensor of unknown rank; or None.
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
    batch_size: int | None = None
    graph_name: str = ""
    notes: tuple[str, ...] = ()
    tensor_shapes: tuple[tuple[int, ...], ...] | None = None

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {self.num_operations} operations in {self.num_groups} "
            f"groups, {self.num_tensors} tensors, {self.num_devices} devices>"
        )

    @property
    def num_operations(self) -> int:
        """The number of operations."""
        return len(self.operation_names)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self.devices)

    @property
    def num_tensors(self) -> int:
        """The number of tensors."""
        return len(self.tensor_producers)

    @functools.cached_property
    def num_groups(self) -> int:
        """The number of groups, which is one more than the highest group number."""
        return int(self.groups.max(initial=-1)) + 1

    @functools.cached_property
    def edges(self) -> np.ndarray:
        """int32 [num_edges, 2], (before, after) of each read of a tensor and each control edge."""
        producers = np.repeat(self.tensor_producers, np.diff(self.consumer_start))
        reads = np.stack([producers, self.consumers], axis=1)
        return np.concatenate([reads, self.control_edges]).astype(np.int32)

    @functools.cached_property
    def order(self) -> np.ndarray:
        """int32 [num_operations], a topological order; ties go to the lowest index."""
        return topological_order(self.num_operations, self.edges)
