"""Static mapping by Scotch, onto all devices and onto the accelerators alone."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.scotch_library import map_graph, require_scotch
from tf_placer.placers.heuristics.weighted_graph import (
    build_weighted_graph,
    compute_link_costs,
    list_accelerators,
)
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MinCut", "Scotch"]


class Scotch(CandidateList):
    """Maps the groups onto a graph of all devices by Scotch, with its default strategy.

    Groups are weighted by their compute times, edges by their bytes, devices by their computing
    power as seen by the groups, and pairs of devices by the costs of their links. Proposes one
    placement. Groups with a single legal device are not part of the mapped graph, because Scotch
    7.0.3 moves fixed nodes on such a target.

    References:
        Pellegrini and Roman, Scotch: A Software Package for Static Mapping by Dual Recursive
        Bipartitioning of Process and Architecture Graphs, HPCN Europe 1996.
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2, "Scotch".
    """

    name = "scotch"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Makes the proposal.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: seeds Scotch.
            problem: the placement problem, with the costs of operations on the devices.

        Raises:
            ImportError: Scotch is not installed.
        """
        check_legal(groups, legal)
        require_scotch(self.name)
        devices = self._list_devices(problem)
        graph = build_weighted_graph(groups, legal, problem, devices)
        mean_bytes = float(graph.edge_bytes.mean()) if graph.edge_bytes.size else 0.0
        placement = legal.argmax(axis=1)
        costs = compute_link_costs(problem, devices, mean_bytes)
        placement[graph.members] = devices[map_graph(graph, costs, seed=seed)]
        super().__init__(groups, legal, seed=seed, candidates=[placement])

    def _list_devices(self, problem: PlacementProblem) -> np.ndarray:
        """Lists the devices to map onto, int64."""
        return np.arange(problem.num_devices)


class MinCut(Scotch):
    """Maps the groups as `Scotch`, but onto the accelerators only.

    Groups that may go to no accelerator stay on the CPU.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2, "MinCut".
    """

    name = "mincut"

    def _list_devices(self, problem: PlacementProblem) -> np.ndarray:
        return list_accelerators(problem)
