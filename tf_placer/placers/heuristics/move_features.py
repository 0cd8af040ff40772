"""What a move changes, as numbers that a model of its worth can read."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph

__all__ = ["MoveFeatures"]

# The graph is looked at in so many parts of equal work, from the inputs to the outputs.
_WINDOWS = 16


class MoveFeatures:
    """Describes moves by what they change, all in shares of the whole graph.

    Six numbers say how a placement differs from the one before, whatever the move: in the most
    work of a device, in the squares of the work of all devices, in the bytes and in the edges
    between devices, and in the first two once more within windows of the graph. Five are of what
    moved: the work, the groups, how much more work their new devices have than their old ones,
    whether it is one group, and whether two changed places. The last is always 1.

    Attributes:
        size: how many numbers there are.
    """

    size = 12

    def __init__(self, groups: GroupGraph, num_devices: int) -> None:
        """Collects what the numbers are made of.

        Args:
            groups: the groups.
            num_devices: how many devices there are.
        """
        self._num_devices = num_devices
        self._work = _shares(groups.work)
        self._edges = groups.edges
        self._edge_bytes = _shares(groups.edge_bytes)
        order = np.argsort(groups.layers, kind="stable")
        self._windows = np.empty(groups.num_groups, np.int64)
        done = np.cumsum(self._work[order])
        self._windows[order] = np.minimum(done * _WINDOWS, _WINDOWS - 1)

    def of(self, before: np.ndarray, after: np.ndarray) -> np.ndarray:
        """Describes moves from one placement.

        Args:
            before: int32 [num_groups], the placement.
            after: int32 [num_moves, num_groups], where each move leads.

        Returns:
            float64 [num_moves, size].
        """
        loads = np.bincount(before, self._work, self._num_devices)
        state = self._state(before)
        return np.stack([self._changed(before, each, loads, state) for each in after])

    def _changed(
        self, before: np.ndarray, after: np.ndarray, loads: np.ndarray, state: np.ndarray
    ) -> np.ndarray:
        """Describes a move from a placement of these loads and this state, float64 [size]."""
        moved = np.flatnonzero(before != after)
        sources, targets = before[moved], after[moved]
        count = max(1, len(moved))
        return np.concatenate(
            [
                self._state(after) - state,
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

    def _state(self, placement: np.ndarray) -> np.ndarray:
        """Describes a placement, float64 [6]."""
        cells = self._windows * self._num_devices + placement
        windows = np.bincount(cells, self._work, _WINDOWS * self._num_devices)
        windows = windows.reshape(_WINDOWS, self._num_devices)
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


def _shares(amounts: np.ndarray) -> np.ndarray:
    """Divides by the sum, unless that is 0."""
    return np.asarray(amounts, np.float64) / (float(amounts.sum()) or 1.0)
