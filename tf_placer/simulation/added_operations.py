"""Problems with operations added, for steps of changed graphs, and the shortest of such steps."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["AddedOperations", "add_operations", "find_shortest"]


class _ChangedStep(Protocol):
    """A simulated step of a changed graph."""

    @property
    def step_secs(self) -> float:
        """The step time in seconds."""
        ...


_Step = TypeVar("_Step", bound=_ChangedStep)


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


def find_shortest(
    change: Callable[[np.ndarray], _Step | None],
    placements: Iterable[np.ndarray],
    *,
    max_secs: float,
) -> _Step | None:
    """Finds the placement whose changed step is the shortest.

    Args:
        change: simulates the changed step of a placement; None if it does not fit.
        placements: int32 [num_groups] each, legal placements.
        max_secs: time limit in seconds, after which no further placement is tried.

    Returns:
        The shortest step; None if none fits.
    """
    end_secs = time.monotonic() + max_secs
    best: _Step | None = None
    for placement in placements:
        if time.monotonic() >= end_secs:
            break
        step = change(placement)
        if step is not None and (best is None or step.step_secs < best.step_secs):
            best = step
    return best
