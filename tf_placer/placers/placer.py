"""The interface of all placers."""

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
    """Checks that every group has a legal device.

    Args:
        groups: the groups.
        legal: bool [num_groups, num_devices], true where a group may go.

    Raises:
        ValueError: `legal` does not fit the groups, or a group has no legal device.
    """
    if legal.dtype != np.bool_ or legal.ndim != 2 or legal.shape[0] != groups.num_groups:
        raise ValueError(
            f"legal must be bool [{groups.num_groups}, devices], not {legal.dtype} {legal.shape}"
        )
    nowhere = np.flatnonzero(~legal.any(axis=1))
    if nowhere.size:
        raise ValueError(f"group {groups.names[nowhere[0]]!r} has no legal device")


class Placer(abc.ABC):
    """A strategy that proposes placements and learns from their measurements.

    The state of a placer depends only on its construction, on `prepare` and on the sequence of
    `observe` calls. `propose` changes no state, so a search resumes by observing its log again.

    Attributes:
        name: the name of the placer in logs.
        batch_size: the preferred number of placements to measure between two updates.
    """

    name: str
    batch_size: int = 1

    def __init__(self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0) -> None:
        """Makes a placer for one graph on one machine.

        Args:
            groups: the groups to place.
            legal: bool [num_groups, num_devices], true where a group may go; every group has a
                legal device.
            seed: the seed of all random numbers.

        Raises:
            ValueError: `legal` does not fit the groups, or a group has no legal device.
        """
        check_legal(groups, legal)
        self.groups = groups
        self.legal = legal
        self.seed = seed

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return self.legal.shape[1]

    @property
    def updates(self) -> Sequence[UpdateRecord]:
        """The records of all updates so far, in order; empty for a placer that does not learn."""
        return ()

    def prepare(  # noqa: B027 (most need no preparation)
        self,
        placements: np.ndarray,
        measurements: Sequence[Measurement],
        left_secs: Callable[[], float],
    ) -> None:
        """Receives earlier measurements before the first `observe`; most placers ignore them.

        Args:
            placements: int32 [n, num_groups], placements that other placers proposed.
            measurements: one per placement.
            left_secs: returns the seconds left to search.
        """

    @property
    def lacks_time(self) -> bool:
        """True if the placer proposes no more placements for want of time alone."""
        return False

    def explain_end(self) -> str:
        """Explains, as a clause, why the placer proposes no more placements."""
        return "it has proposed all of its placements"

    @abc.abstractmethod
    def propose(self, count: int) -> np.ndarray:
        """Proposes placements to measure next, without changing any state.

        Args:
            count: the maximum number of placements.

        Returns:
            int32 [n, num_groups] with 0 <= n <= count, each entry a legal device of its group.
            An empty array means that this placer has no more placements to propose. A smaller
            count gets the first of the same placements, because a search that resumes may ask for
            more of a batch than before.
        """

    @abc.abstractmethod
    def observe(self, placements: np.ndarray, measurements: Sequence[Measurement]) -> None:
        """Learns from measured placements.

        Args:
            placements: int32 [n, num_groups], as proposed.
            measurements: one per placement.
        """

    def save(self, directory: str | os.PathLike[str]) -> None:  # noqa: B027 (most learn nothing)
        """Writes the learned state to files, each atomically.

        A placer that learns nothing writes nothing.

        Args:
            directory: an existing directory for the files.

        Raises:
            OSError: a file cannot be written.
        """
