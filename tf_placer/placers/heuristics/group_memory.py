"""Estimates of the memory of groups before they are placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.util.topological_order import topological_order
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["GroupMemory", "compute_peak_bytes", "estimate_group_memories"]

_MAX_INSTANTS = 4
_NUM_CANDIDATE_INSTANTS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class GroupMemory:
    """The memory that each group adds to its device at some instant.

    Tensors here are those alive at the instant that other groups still need.

    Attributes:
        kept_bytes: int64 [num_groups], the bytes that each group holds.
        temporary_bytes: int64 [num_groups], the most further bytes that an operation of the group
            needs while it runs. The operations of a device share this memory.
        tensor_groups: int32 [num_tensors], the group that makes each tensor.
        tensor_bytes: int64 [num_tensors], the bytes of a copy of each on another device.
        local_bytes: int64 [num_tensors], the bytes of each in `kept_bytes` of its group.
        reads: int64 [num_reads, 2], the pairs (tensor, another group that still needs it), none
            twice.
    """

    kept_bytes: np.ndarray
    temporary_bytes: np.ndarray
    tensor_groups: np.ndarray
    tensor_bytes: np.ndarray
    local_bytes: np.ndarray
    reads: np.ndarray

    def compute_held_bytes(self, placement: np.ndarray, num_devices: int) -> np.ndarray:
        """Computes the memory of the devices in a placement at the instant.

        Args:
            placement: int [num_groups], the device of each group.
            num_devices: the number of devices.

        Returns:
            int64 [num_devices], bytes.
        """
        held = np.zeros(num_devices, np.int64)
        np.add.at(held, placement, self.kept_bytes)
        temporary = np.zeros(num_devices, np.int64)
        np.maximum.at(temporary, placement, self.temporary_bytes)
        tensors, readers = self.reads.T
        ends = placement[readers].astype(np.int64)
        sent = ends != placement[self.tensor_groups[tensors]]
        copies = np.unique(tensors[sent] * num_devices + ends[sent])
        np.add.at(held, copies % num_devices, self.tensor_bytes[copies // num_devices])
        return held + temporary

    def drop_copies(self) -> GroupMemory:
        """Copies this without the memory of copies on other devices."""
        return dataclasses.replace(self, reads=np.zeros([0, 2], np.int64))


def compute_peak_bytes(
    memories: Sequence[GroupMemory], placement: np.ndarray, num_devices: int
) -> np.ndarray:
    """Computes the peak memory of the devices in a placement over some instants.

    Args:
        memories: the memory of groups at each instant.
        placement: int [num_groups], the device of each group.
        num_devices: the number of devices.

    Returns:
        int64 [num_devices], bytes.
    """
    held = [memory.compute_held_bytes(placement, num_devices) for memory in memories]
    most: np.ndarray = np.max(held, axis=0)
    return most


def estimate_group_memories(problem: PlacementProblem) -> list[GroupMemory]:
    """Estimates the memory of each group at the instants of high memory use.

    A group holds its resident memory and its tensors that are alive if a single device runs all
    operations in the order in which they become ready.

    Returns:
        The memory at the instant when most bytes are alive, in training mostly activations kept
        for the backward pass or gradients that wait for their sum; and then at up to three
        instants at which other groups hold more.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020: memory of
        an operation is permanent or temporary. Instants and copies are ours.
    """
    lives = _Lives(problem)
    changes = np.zeros(problem.num_operations + 1, np.int64)
    np.add.at(changes, lives.firsts, problem.local_bytes)
    np.subtract.at(changes, lives.lasts + 1, problem.local_bytes)
    chosen = [int(np.argmax(np.cumsum(changes)))]
    places = np.linspace(0, problem.num_operations - 1, _NUM_CANDIDATE_INSTANTS)
    others = places.astype(np.int64).tolist()
    alive_bytes = {instant: lives.compute_alive_bytes(instant) for instant in [*chosen, *others]}
    most = alive_bytes[chosen[0]]
    while len(chosen) < _MAX_INSTANTS:
        more = {each: int(np.maximum(alive_bytes[each] - most, 0).sum()) for each in others}
        best = max(others, key=lambda instant: more[instant])
        if not more[best]:
            break
        chosen.append(best)
        most = np.maximum(most, alive_bytes[best])
    return [lives.compute_memory(instant) for instant in chosen]


class _Lives:
    """The lifetimes of tensors on a single device, as places of operations in its order.

    Attributes:
        firsts: int64 [num_tensors], the place of the operation that makes each tensor.
        lasts: int64 [num_tensors], the place of the last operation that reads it.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        places = np.empty(problem.num_operations, np.int64)
        # Run the operation first that has been ready for longest.
        order = topological_order(problem.num_operations, problem.edges, "oldest")
        places[order] = np.arange(problem.num_operations)
        self._tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
        self._read_places = places[problem.consumers]
        self._readers = problem.groups[problem.consumers]
        self._owners = problem.groups[problem.tensor_producers]
        self.firsts = places[problem.tensor_producers]
        self.lasts = self.firsts.copy()
        np.maximum.at(self.lasts, self._tensors, self._read_places)

    def compute_alive_bytes(self, instant: int) -> np.ndarray:
        """Computes the bytes of each group's tensors at an instant, int64 [num_groups]."""
        alive = (self.firsts <= instant) & (instant <= self.lasts)
        held = np.zeros(self._problem.num_groups, np.int64)
        np.add.at(held, self._owners[alive], self._problem.local_bytes[alive])
        return held

    def compute_memory(self, instant: int) -> GroupMemory:
        """Computes the memory of groups while the operation at a place runs."""
        problem = self._problem
        kept_bytes = self.compute_alive_bytes(instant)
        np.add.at(kept_bytes, problem.groups, problem.resident_bytes)
        temporary_bytes = np.zeros(problem.num_groups, np.int64)
        np.maximum.at(temporary_bytes, problem.groups, problem.temp_bytes)
        tensors, readers = self._tensors, self._readers
        needed = (self.firsts[tensors] <= instant) & (instant <= self._read_places)
        needed &= (readers != self._owners[tensors]) & (problem.tensor_bytes[tensors] > 0)
        reads = np.unique(np.stack([tensors, readers], axis=1)[needed], axis=0).astype(np.int64)
        sent, numbers = np.unique(reads[:, 0], return_inverse=True)
        reads[:, 0] = numbers
        return GroupMemory(
            kept_bytes,
            temporary_bytes,
            self._owners[sent],
            problem.tensor_bytes[sent],
            problem.local_bytes[sent],
            reads,
        )
