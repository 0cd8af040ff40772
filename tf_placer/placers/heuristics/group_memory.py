"""What groups hold in memory, before it is known where they go."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.util.topological_order import topological_order
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["GroupMemory", "group_memories", "held_bytes"]

_NUM_INSTANTS = 4
# Among how many instants those are looked for.
_NUM_LOOKS = 64


@dataclasses.dataclass(frozen=True, eq=False)
class GroupMemory:
    """What each group adds to the memory of its device at some instant.

    Attributes:
        kept_bytes: int64 [num_groups], what it holds then.
        temporary_bytes: int64 [num_groups], the most that one of its operations holds beside that
            while it runs. Operations of a device share the room for it.
        tensor_groups: int32 [num_tensors], the groups that make the tensors between groups that
            are there then.
        tensor_bytes: int64 [num_tensors], what a copy of each holds on another device.
        local_bytes: int64 [num_tensors], what each adds to what its group keeps.
        reads: int64 [num_reads, 2], (number of such a tensor, another group that still needs it
            then), none twice.
    """

    kept_bytes: np.ndarray
    temporary_bytes: np.ndarray
    tensor_groups: np.ndarray
    tensor_bytes: np.ndarray
    local_bytes: np.ndarray
    reads: np.ndarray

    def on_devices(self, placement: np.ndarray, num_devices: int) -> np.ndarray:
        """Computes what a placement holds.

        Args:
            placement: int [num_groups], the device of each group.
            num_devices: how many devices there are.

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

    def without_copies(self) -> GroupMemory:
        """Makes the same as if copies on other devices held nothing."""
        return dataclasses.replace(self, reads=np.zeros([0, 2], np.int64))


def held_bytes(
    memories: Sequence[GroupMemory], placement: np.ndarray, num_devices: int
) -> np.ndarray:
    """Computes the most that a placement holds at any of some instants.

    Args:
        memories: what groups hold at each instant.
        placement: int [num_groups], the device of each group.
        num_devices: how many devices there are.

    Returns:
        int64 [num_devices], bytes.
    """
    held = [memory.on_devices(placement, num_devices) for memory in memories]
    most: np.ndarray = np.max(held, axis=0)
    return most


def group_memories(problem: PlacementProblem) -> list[GroupMemory]:
    """Estimates what each group holds at the instants that matter.

    Its operations hold what is resident, and the tensors of them that are alive if a single device
    runs everything in the order in which it becomes ready.

    Returns:
        What is held when most is alive, in training mostly what the forward pass keeps for the
        backward pass or gradients that wait for their sum; and then at up to three instants at
        which other groups hold more.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020: memory of
        an operation is permanent or temporary. Instants and copies are ours.
    """
    lives = _Lives(problem)
    changes = np.zeros(problem.num_operations + 1, np.int64)
    np.add.at(changes, lives.firsts, problem.local_bytes)
    np.subtract.at(changes, lives.lasts + 1, problem.local_bytes)
    chosen = [int(np.argmax(np.cumsum(changes)))]
    others = np.linspace(0, problem.num_operations - 1, _NUM_LOOKS).astype(np.int64).tolist()
    alive_bytes = {instant: lives.alive_bytes(instant) for instant in [*chosen, *others]}
    most = alive_bytes[chosen[0]]
    while len(chosen) < _NUM_INSTANTS:
        more = {each: int(np.maximum(alive_bytes[each] - most, 0).sum()) for each in others}
        best = max(others, key=lambda instant: more[instant])
        if not more[best]:
            break
        chosen.append(best)
        most = np.maximum(most, alive_bytes[best])
    return [lives.memory(instant) for instant in chosen]


class _Lives:
    """When tensors are alive on a single device, counted in operations.

    Attributes:
        firsts: int64 [num_tensors], the place of the operation that makes each.
        lasts: int64 [num_tensors], the place of the last operation that reads it.
    """

    def __init__(self, problem: PlacementProblem) -> None:
        self._problem = problem
        places = np.empty(problem.num_operations, np.int64)
        # First what has been ready for longest.
        order = topological_order(problem.num_operations, problem.edges, "oldest")
        places[order] = np.arange(problem.num_operations)
        self._tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
        self._read_places = places[problem.consumers]
        self._readers = problem.groups[problem.consumers]
        self._owners = problem.groups[problem.tensor_producers]
        self.firsts = places[problem.tensor_producers]
        self.lasts = self.firsts.copy()
        np.maximum.at(self.lasts, self._tensors, self._read_places)

    def alive_bytes(self, instant: int) -> np.ndarray:
        """Computes what each group's tensors hold while an operation runs: int64 [num_groups]."""
        alive = (self.firsts <= instant) & (instant <= self.lasts)
        held = np.zeros(self._problem.num_groups, np.int64)
        np.add.at(held, self._owners[alive], self._problem.local_bytes[alive])
        return held

    def memory(self, instant: int) -> GroupMemory:
        """Computes what groups hold while the operation at a place runs."""
        problem = self._problem
        kept_bytes = self.alive_bytes(instant)
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
