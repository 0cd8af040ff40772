"""Static mapping onto all devices, and onto the accelerators alone."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.scotch_library import map_graph, require_scotch
from tf_placer.placers.heuristics.weighted_graph import accelerators, link_costs, weighted_graph
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MinCut", "Scotch"]


class Scotch(CandidateList):
    """Maps the groups onto a graph of all devices by Scotch, with its default strategy.

    Groups weigh what they compute and edges the bytes that they carry; devices have the powers to
    compute that the groups show, and between them is what their links cost. Proposes one placement.
    Groups that have no choice stay where they must be, and are no part of what is mapped: Scotch
    7.0.3 moves nodes that are to be fixed on such a target.

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
            seed: of the random choices of Scotch.
            problem: what the operations of the groups cost on these devices.

        Raises:
            ImportError: Scotch is not installed.
        """
        check_legal(groups, legal)
        require_scotch(self.name)
        devices = self._devices(problem)
        graph = weighted_graph(groups, legal, problem, devices)
        mean_bytes = float(graph.edge_bytes.mean()) if graph.edge_bytes.size else 0.0
        placement = legal.argmax(axis=1)
        costs = link_costs(problem, devices, mean_bytes)
        placement[graph.members] = devices[map_graph(graph, costs, seed=seed)]
        super().__init__(groups, legal, seed=seed, candidates=[placement])

    def _devices(self, problem: PlacementProblem) -> np.ndarray:
        """Lists the devices to map onto, int64."""
        return np.arange(problem.num_devices)


class MinCut(Scotch):
    """The same without the CPU, where only groups stay that may go to no accelerator.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2, "MinCut".
    """

    name = "mincut"

    def _devices(self, problem: PlacementProblem) -> np.ndarray:
        return accelerators(problem)
