"""Problems with operations added, for steps that a changed graph would have."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["AddedOperations", "add_operations"]


@dataclasses.dataclass(frozen=True, eq=False)
class AddedOperations:
    """Operations to add to a problem, each in a group of its own, with an output tensor each.

    The added operations have the numbers after those of the problem, and so have their tensors.

    Attributes:
        names: their names.
        types: their types.
        compute_secs: float64 [num_added, num_devices].
        temp_bytes: int64 [num_added].
        output_bytes: int64 [num_added], the size of the output tensor of each.
        reads: int [num_reads, 2], pairs (tensor, added operation that reads it).
        rerouted: int [num_rerouted, 2], pairs (index into `PlacementProblem.consumers`, tensor that
            is read there instead).
        control_edges: int [num_edges, 2], pairs (operation before, operation after).
    """

    names: Sequence[str]
    types: Sequence[str]
    compute_secs: np.ndarray
    temp_bytes: np.ndarray
    output_bytes: np.ndarray
    reads: np.ndarray
    rerouted: np.ndarray
    control_edges: np.ndarray


def add_operations(problem: PlacementProblem, added: AddedOperations) -> PlacementProblem:
    """Adds operations to a problem; coarse groups, layers and shapes are left out."""
    count, num_added = problem.num_operations, len(added.names)
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    places, instead = np.reshape(added.rerouted, (-1, 2)).astype(np.int64).T
    tensors[places] = instead
    read, readers = np.reshape(added.reads, (-1, 2)).astype(np.int64).T
    tensors = np.concatenate([tensors, read])
    consumers: np.ndarray = np.concatenate([problem.consumers, readers]).astype(np.int32)
    order = np.lexsort((consumers, tensors))
    counts = np.bincount(tensors, minlength=problem.num_tensors + num_added)
    types = problem.operation_types
    return dataclasses.replace(
        problem,
        operation_names=(*problem.operation_names, *added.names),
        operation_types=None if types is None else (*types, *added.types),
        compute_secs=np.concatenate([problem.compute_secs, added.compute_secs]),
        resident_bytes=np.append(problem.resident_bytes, np.zeros(num_added, np.int64)),
        temp_bytes=np.append(problem.temp_bytes, added.temp_bytes),
        groups=np.append(problem.groups, problem.num_groups + np.arange(num_added)),
        coarse_groups=None,
        layers=None,
        tensor_shapes=None,
        tensor_producers=np.append(problem.tensor_producers, count + np.arange(num_added)),
        tensor_bytes=np.append(problem.tensor_bytes, added.output_bytes),
        local_bytes=np.append(problem.local_bytes, added.output_bytes),
        consumer_start=np.append(0, np.cumsum(counts)),
        consumers=consumers[order],
        control_edges=np.concatenate(
            [problem.control_edges, np.reshape(added.control_edges, (-1, 2))]
        ),
    )
