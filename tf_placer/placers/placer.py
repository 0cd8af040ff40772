"""The one face of everything that proposes placements."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.environments.environment import Measurement
from tf_placer.placers.update_record import UpdateRecord

__all__ = ["Placer", "check_legal"]


def check_legal(groups: GroupGraph, legal: np.ndarray) -> None:
    """Checks that every group may go somewhere.

    Args:
        groups: the groups.
        legal: bool [num_groups, num_devices], true where a group may go.

    Raises:
        ValueError: `legal` does not fit the groups, or a group may go nowhere.
    """
    if legal.dtype != np.bool_ or legal.ndim != 2 or legal.shape[0] != groups.num_groups:
        raise ValueError(
            f"legal must be bool [{groups.num_groups}, devices], not {legal.dtype} {legal.shape}"
        )
    nowhere = np.flatnonzero(~legal.any(axis=1))
    if nowhere.size:
        raise ValueError(f"group {groups.names[nowhere[0]]!r} has no legal device")


class Placer(abc.ABC):
    """Proposes placements and learns from what they measured.

    The state of a placer is a function of its construction, of `prepare` and of the sequence of
    `observe` calls alone: `propose` changes nothing, so a search is resumed by observing its log
    again.

    Attributes:
        name: what the log calls it.
        batch_size: how many placements it wants measured between two updates.
    """

    name: str
    batch_size: int = 1

    def __init__(self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0) -> None:
        """Makes a placer for one graph on one machine.

        Args:
            groups: the groups to place, and what is known about them.
            legal: bool [num_groups, num_devices], true where a group may go; every row has one.
            seed: of everything random.

        Raises:
            ValueError: `legal` does not fit the groups, or a group may go nowhere.
        """
        check_legal(groups, legal)
        self.groups = groups
        self.legal = legal
        self.seed = seed

    @property
    def num_devices(self) -> int:
        """How many devices there are to choose from."""
        return self.legal.shape[1]

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """What each update so far saw and did, in order; none of a placer that does not learn."""
        return ()

    def prepare(  # noqa: B027 (most need no preparation)
        self,
        placements: np.ndarray,
        measurements: Sequence[Measurement],
        left_secs: Callable[[], float],
    ) -> None:
        """Takes in what is known before the first `observe`; most placers ignore it.

        Args:
            placements: int32 [n, num_groups], what others had measured.
            measurements: one per placement.
            left_secs: says how many seconds are left to search.
        """

    @abc.abstractmethod
    def propose(self, count: int) -> np.ndarray:
        """Placements worth measuring next, without changing any state.

        Args:
            count: how many at most.

        Returns:
            int32 [n, num_groups] with 0 <= n <= count, each entry a legal device of its group.
            An empty array says that this placer has nothing more to propose.
        """

    @abc.abstractmethod
    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Learns from measured placements.

        Args:
            placements: int32 [n, num_groups], as proposed.
            measurements: one per placement.
        """

    def save(self, directory: str | os.PathLike[str]) -> None:  # noqa: B027 (most learn nothing)
        """Writes what it has learned to files of its own, each whole or not at all.

        A placer that learns nothing writes nothing.

        Args:
            directory: where to; it exists.

        Raises:
            OSError: it cannot be written.
        """
