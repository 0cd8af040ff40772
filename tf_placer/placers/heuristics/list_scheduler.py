"""The base of placers that schedule the operations of a problem one by one."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.group_binding import GroupBinding
from tf_placer.placers.heuristics.group_memory import GroupMemory, compute_peak_bytes
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = [
    "COMMUNICATION_WEIGHTS",
    "MEMORY_SHARES",
    "ListScheduler",
    "generate_placements",
    "list_device_sets",
    "restrict_to_devices",
]

COMMUNICATION_WEIGHTS = (1.0, 4.0, 16.0)
"""The factors on the costs of transfers to try: 1 for idle links, more for busy ones."""

MEMORY_SHARES = (1.0, 0.75, 0.5)
"""The shares of a device's memory to try as limits, because memory is only estimated."""


class ListScheduler(CandidateList):
    """Proposes the placements of a list scheduler.

    It schedules operations instead of groups, because the graph of groups may have cycles. The
    first scheduled operation of a group binds the whole group to its device.
    """

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Prepares the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: see `Placer`.
            problem: the placement problem, with the costs of operations on the devices.
        """
        check_legal(groups, legal)
        super().__init__(
            groups, legal, seed=seed, candidates=self._generate_placements(groups, legal, problem)
        )

    @abc.abstractmethod
    def _generate_placements(
        self, groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem
    ) -> Iterator[np.ndarray]:
        """Yields the proposals, the published variant first.

        Args:
            groups: see `__init__`.
            legal: see `__init__`.
            problem: see `__init__`.

        Yields:
            int [num_groups] each, the device of every group.
        """


def list_device_sets(num_devices: int) -> list[list[int]]:
    """Lists the sets of devices to schedule on: all but device 0, the CPU, and then all.

    Args:
        num_devices: the number of devices.
    """
    everywhere = list(range(num_devices))
    return [everywhere[1:], everywhere] if num_devices > 1 else [everywhere]


def restrict_to_devices(legal: np.ndarray, devices: Sequence[int]) -> np.ndarray:
    """Restricts groups to some devices.

    Args:
        legal: bool [num_groups, num_devices].
        devices: the devices to use.

    Returns:
        Like `legal`, but false for the other devices; groups that may go to none of the devices
        keep theirs.
    """
    used = np.zeros(legal.shape[1], np.bool_)
    used[list(devices)] = True
    some: np.ndarray = legal & used
    return np.where(some.any(axis=1, keepdims=True), some, legal)


def generate_placements(
    schedule: Callable[[GroupBinding], object],
    allowed: np.ndarray,
    memories: Sequence[GroupMemory],
    limits: Sequence[np.ndarray],
) -> Iterator[np.ndarray]:
    """Runs a list scheduler under tighter and tighter memory limits.

    Args:
        schedule: schedules all operations, and thereby binds the groups.
        allowed: bool [num_groups, num_devices], true where a group may go.
        memories: the memory of groups at some instants.
        limits: float64 [num_devices] each, the memory limits, from the widest to the tightest.

    Yields:
        int32 [num_groups] each, the device of every group. A limit that the previous placement
        meets would not change it, and is skipped.
    """
    held: np.ndarray | None = None
    for limit in limits:
        # Free memory only shrinks: if the final placement fits, every earlier binding fitted.
        if held is not None and (held <= limit).all():
            continue
        binding = GroupBinding(allowed, memories, limit.tolist())
        schedule(binding)
        held = compute_peak_bytes(memories, binding.build_placement(), allowed.shape[1])
        yield binding.build_placement()
