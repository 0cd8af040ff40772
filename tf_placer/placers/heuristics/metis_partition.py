"""METIS: balanced parts, one per accelerator, that send each other little."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pymetis

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.weighted_graph import (
    WeightedGraph,
    accelerators,
    weighted_graph,
    whole_numbers,
)
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MetisPartition", "metis_parts"]

# METIS adds weights up in 32-bit numbers, unless it was built with larger ones. Half leaves room.
_MOST_BYTES = 1 << 30
# Thousandths by which a part may be too heavy: the default of METIS, and what lets it cut less.
_IMBALANCES = (30, 100, 300)
# Seeds are C integers; -1 stands for a default.
_NUM_SEEDS = 1 << 31


class MetisPartition(CandidateList):
    """Cuts the graph of groups into one part per accelerator.

    Parts are balanced in what they take to compute, in proportion to the powers of the
    accelerators, and METIS minimizes the bytes between them. Proposes parts that are 3 %, 10 % and
    30 % out of balance at most, each made at once and by recursive bisection. Groups that may go to
    no accelerator stay on their first legal device, and are no part of what is cut.

    References:
        Karypis and Kumar, A Fast and High Quality Multilevel Scheme for Partitioning Irregular
        Graphs, SIAM Journal on Scientific Computing, 1998.
        Gao et al., Post: Device Placement with Cross-Entropy Minimization and Proximal Policy
        Optimization, NeurIPS 2018, section 4, "Metis".
    """

    name = "metis"

    def __init__(
        self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0, problem: PlacementProblem
    ) -> None:
        """Makes the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: of the random choices of METIS.
            problem: what the operations of the groups cost on these devices.
        """
        check_legal(groups, legal)
        candidates = _candidates(groups, legal, problem, seed)
        super().__init__(groups, legal, seed=seed, candidates=candidates)


def _candidates(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, seed: int
) -> Iterator[np.ndarray]:
    devices = accelerators(problem)
    graph = weighted_graph(groups, legal, problem, devices)
    for imbalance in _IMBALANCES:
        for recursive in (False, True):
            placement = legal.argmax(axis=1)
            parts = metis_parts(graph, imbalance=imbalance, recursive=recursive, seed=seed)
            placement[graph.members] = devices[parts]
            yield placement


def metis_parts(graph: WeightedGraph, *, imbalance: int, recursive: bool, seed: int) -> np.ndarray:
    """Cuts a graph into one part per device.

    Args:
        graph: the graph, with the powers of the devices.
        imbalance: by how many thousandths a part may be heavier than its share.
        recursive: whether to bisect again and again; otherwise all parts are made at once.
        seed: of METIS' random choices.

    Returns:
        int64 [num_nodes], the part of each node: its device. Where there are no more nodes than
        devices, each is a part.
    """
    num_parts = len(graph.powers)
    if num_parts == 1 or graph.num_nodes <= num_parts:
        return np.arange(graph.num_nodes) % num_parts
    _, parts = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(graph.start, graph.neighbors),
        vweights=graph.work,
        eweights=whole_numbers(graph.edge_bytes, _MOST_BYTES),
        tpwgts=(graph.powers / graph.powers.sum()).tolist(),
        recursive=recursive,
        options=pymetis.Options(seed=seed % _NUM_SEEDS, ufactor=imbalance),
    )
    return np.asarray(parts, np.int64)
