"""The base of placers that schedule the operations of a problem one by one."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import GroupMemory, held_bytes
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "COMMUNICATION_WEIGHTS",
    "MEMORY_SHARES",
    "ListScheduler",
    "accelerators_first",
    "bound_placements",
    "legal_on",
]

COMMUNICATION_WEIGHTS = (1.0, 4.0, 16.0)
"""What transfers are taken to cost, in turn: as much as on an idle link, and as on busy ones."""

MEMORY_SHARES = (1.0, 0.75, 0.5)
"""What of the memory of a device is filled, in turn: what a placement holds is an estimate."""


class ListScheduler(CandidateList):
    """Proposes the placements that a list scheduler comes to.

    It schedules the operations of the problem, as the groups may wait for each other in circles.
    The first operation of a group that is scheduled binds the whole group to its device.
    """

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Makes the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: what the operations of the groups cost on these devices.
        """
        check_legal(groups, legal)
        super().__init__(
            groups, legal, seed=seed, candidates=self._placements(groups, legal, problem)
        )

    @abc.abstractmethod
    def _placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        """Makes the proposals, as published first.

        Args:
            groups: see `__init__`.
            legal: see `__init__`.
            problem: see `__init__`.

        Returns:
            int [num_groups] each, the device of every group.
        """


def accelerators_first(num_devices: int) -> list[list[int]]:
    """Lists the devices to schedule on: all but device 0, the CPU, and then all.

    Args:
        num_devices: how many devices there are.
    """
    everywhere = list(range(num_devices))
    return [everywhere[1:], everywhere] if num_devices > 1 else [everywhere]


def legal_on(legal: np.ndarray, devices: Sequence[int]) -> np.ndarray:
    """Says where groups may go if only some devices are taken.

    Args:
        legal: bool [num_groups, num_devices].
        devices: those that are taken.

    Returns:
        The same without the other devices, but in the rows that would be left with none.
    """
    taken = np.zeros(legal.shape[1], np.bool_)
    taken[list(devices)] = True
    some: np.ndarray = legal & taken
    return np.where(some.any(axis=1, keepdims=True), some, legal)


def bound_placements(
    schedule: Callable[[GroupBinding], object],
    allowed: np.ndarray,
    memories: Sequence[GroupMemory],
    limits: Sequence[np.ndarray],
) -> Iterator[np.ndarray]:
    """Runs a list scheduler under tighter and tighter limits of memory.

    Args:
        schedule: schedules all operations, and thereby binds the groups.
        allowed: bool [num_groups, num_devices], where groups may go.
        memories: what groups hold at some instants.
        limits: float64 [num_devices] each, what devices can hold, from the widest to the tightest.

    Returns:
        int32 [num_groups] each, the device of every group. What a limit would not change is not
        scheduled again.
    """
    held: np.ndarray | None = None
    for limit in limits:
        # Rooms only become smaller: what fits in the end has fitted all the time.
        if held is not None and (held <= limit).all():
            continue
        binding = GroupBinding(allowed, memories, limit.tolist())
        schedule(binding)
        held = held_bytes(memories, binding.placement(), allowed.shape[1])
        yield binding.placement()
