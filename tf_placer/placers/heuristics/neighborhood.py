"""The placements one move away from a placement."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.undirected import build_undirected_graph

__all__ = ["Neighborhood"]

_SINGLE, _NEIGHBORS, _LAYER, _SWAP = range(4)
_NUM_MOVES = 4


class Neighborhood:
    """Random moves of four kinds with equal probabilities.

    A move draws a group that may go to several devices, and another device for it. The group goes
    there

    - alone,
    - with those of its neighbors in the graph that are on its device,
    - with those groups of its layer that are on its device, or
    - in exchange for a group that is there.

    Groups that may not go to the device stay. Without a group to exchange, the drawn group goes
    alone.

    Attributes:
        num_single_moves: the number of different moves of a single group.
    """

    def __init__(self, groups: GroupGraph, legal: np.ndarray) -> None:
        """Prepares the moves.

        Args:
            groups: the groups.
            legal: bool [num_groups, num_devices], true where a group may go; every row has one.
        """
        self._legal = legal
        self._choices = [np.flatnonzero(row) for row in legal]
        self._movable = np.flatnonzero(legal.sum(axis=1) > 1)
        self.num_single_moves = int((legal.sum(axis=1) - 1).sum())
        graph = build_undirected_graph(groups)
        self._neighbors = np.split(graph.neighbors, graph.start[1:-1])
        by_layer = np.argsort(groups.layers, kind="stable")
        _, firsts, layers = np.unique(
            groups.layers[by_layer], return_index=True, return_inverse=True
        )
        self._layers = np.split(by_layer, firsts[1:])
        self._layer_of = np.empty(groups.num_groups, np.int64)
        self._layer_of[by_layer] = layers

    @property
    def num_movable(self) -> int:
        """The number of groups that may go to several devices."""
        return len(self._movable)

    def draw_move(self, placement: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Draws a placement one random move away.

        Args:
            placement: int32 [num_groups], a legal placement. Some group must be movable.
            generator: draws the move, by four numbers.

        Returns:
            A copy of the placement, with the drawn group on another device.
        """
        draws = generator.random(_NUM_MOVES)
        group = _pick(self._movable, draws[0])
        choices = self._choices[group]
        source = placement[group]
        target = _pick(choices[choices != source], draws[1])
        kind = int(draws[2] * _NUM_MOVES)
        result = placement.copy()
        if kind == _NEIGHBORS:
            self._take_along(result, self._neighbors[group], source, target)
        elif kind == _LAYER:
            self._take_along(result, self._layers[self._layer_of[group]], source, target)
        elif kind == _SWAP:
            others = self._movable[placement[self._movable] == target]
            others = others[self._legal[others, source]]
            if others.size:
                result[_pick(others, draws[3])] = source
        result[group] = target
        return result

    def _take_along(
        self, placement: np.ndarray, others: np.ndarray, source: int, target: int
    ) -> None:
        together = (placement[others] == source) & self._legal[others, target]
        placement[others[together]] = target


def _pick(items: np.ndarray, draw: float) -> int:
    """Picks an item by a number from 0 to below 1."""
    return int(items[int(draw * len(items))])
