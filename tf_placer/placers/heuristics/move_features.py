"""Features of moves, for a model of their gains."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["MoveFeatures"]

_NUM_WINDOWS = 16


class MoveFeatures:
    """Describes moves by features, as shares of the whole graph.

    Six features are differences between the placements after and before the move: of the largest
    work of a device, of the sum of the squared work of all devices, of the bytes and of the edges
    between devices, and of the first two within windows of the graph. The windows have equal work
    and are ordered from the inputs to the outputs. Five features describe the moved groups: their
    work, their number, the mean surplus of work of their new devices over their old ones, whether
    it is a single group, and whether two groups changed places. The last feature is always 1.

    Attributes:
        size: the number of features.
    """

    size = 12

    def __init__(self, groups: GroupGraph, num_devices: int) -> None:
        """Prepares the features.

        Args:
            groups: the groups.
            num_devices: the number of devices.
        """
        self._num_devices = num_devices
        self._work = _normalize(groups.work)
        self._edges = groups.edges
        self._edge_bytes = _normalize(groups.edge_bytes)
        order = np.argsort(groups.layers, kind="stable")
        self._windows = np.empty(groups.num_groups, np.int64)
        done = np.cumsum(self._work[order])
        self._windows[order] = np.minimum(done * _NUM_WINDOWS, _NUM_WINDOWS - 1)

    def describe(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Describes moves from one placement.

        Args:
            before: int32 [num_groups], the placement.
            after: int32 [num_moves, num_groups], the placement after each move.

        Returns:
            float64 [num_moves, size].
        """
        loads = np.bincount(before, self._work, self._num_devices)
        state = self._describe_placement(before)
        return np.stack([self._describe_move(before, each, loads, state) for each in after])

    def _describe_move(
        self, before: np.ndarray, after: np.ndarray, loads: np.ndarray, state: np.ndarray
    ) -> np.ndarray:
        """Describes a move from a placement of known loads and state, float64 [size]."""
        moved = np.flatnonzero(before != after)
        sources, targets = before[moved], after[moved]
        count = max(1, len(moved))
        return np.concatenate(
            [
                self._describe_placement(after) - state,
                [
                    self._work[moved].sum(),
                    len(moved) / len(before),
                    (loads[targets] - loads[sources]).sum() / count,
                    len(moved) == 1,
                    len(moved) == 2 and bool((sources == targets[::-1]).all()),
                    1.0,
                ],
            ]
        )

    def _describe_placement(self, placement: np.ndarray) -> np.ndarray:
        """Describes a placement, float64 [6]."""
        cells = self._windows * self._num_devices + placement
        windows = np.bincount(cells, self._work, _NUM_WINDOWS * self._num_devices)
        windows = windows.reshape(_NUM_WINDOWS, self._num_devices)
        loads = windows.sum(axis=0)
        cut = placement[self._edges[:, 0]] != placement[self._edges[:, 1]]
        return np.array(
            [
                loads.max(),
                (loads**2).sum(),
                self._edge_bytes[cut].sum(),
                cut.sum() / max(1, len(cut)),
                windows.max(axis=1).sum(),
                (windows**2).sum(),
            ]
        )


def _normalize(amounts: np.ndarray) -> np.ndarray:
    """Divides amounts by their sum, unless that is 0."""
    return np.asarray(amounts, np.float64) / (float(amounts.sum()) or 1.0)
