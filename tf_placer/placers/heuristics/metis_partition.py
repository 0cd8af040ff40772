"""METIS: balanced parts, one per accelerator, with little traffic between them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
import threading
from collections.abc import Iterator

import numpy as np
import pymetis

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.weighted_graph import (
    WeightedGraph,
    build_weighted_graph,
    list_accelerators,
    scale_to_integers,
)
from tf_placer.placers.placer import check_legal
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["MetisPartition", "partition_graph"]

# METIS may add up weights in 32-bit integers, depending on its build; half of their range is safe.
_MAX_TOTAL_BYTES = 1 << 30
# The default of METIS, and larger imbalances, which allow smaller cuts.
_IMBALANCES_PER_MILLE = (30, 100, 300)
# Seeds are C integers, in which -1 stands for a default.
_NUM_SEEDS = 1 << 31
_STANDARD_OUTPUT_LOCK = threading.Lock()
_COMPLAINT = b"***"


class MetisPartition(CandidateList):
    """Cuts the graph of groups into one part per accelerator.

    The compute times of the parts are balanced, in proportion to the powers of the accelerators,
    and METIS minimizes the bytes between parts. Proposes parts with an imbalance of at most 3 %,
    10 % and 30 %, each by k-way partitioning and by recursive bisection. Groups that may go to no
    accelerator stay on their first legal device, and are not part of the partitioned graph.

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
        """Prepares the proposals.

        Args:
            groups: see `Placer`.
            legal: see `Placer`.
            seed: seeds METIS.
            problem: the placement problem, with the costs of operations on the devices.
        """
        check_legal(groups, legal)
        candidates = _generate_candidates(groups, legal, problem, seed)
        super().__init__(groups, legal, seed=seed, candidates=candidates)


def _generate_candidates(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, seed: int
) -> Iterator[np.ndarray]:
    devices = list_accelerators(problem)
    graph = build_weighted_graph(groups, legal, problem, devices)
    for imbalance in _IMBALANCES_PER_MILLE:
        for recursive in (False, True):
            placement = legal.argmax(axis=1)
            parts = partition_graph(graph, imbalance=imbalance, recursive=recursive, seed=seed)
            placement[graph.members] = devices[parts]
            yield placement


def partition_graph(
    graph: WeightedGraph, *, imbalance: int, recursive: bool, seed: int
) -> np.ndarray:
    """Cuts a graph into one part per device.

    Args:
        graph: the graph, with the powers of the devices.
        imbalance: the largest excess of a part over its share, in thousandths.
        recursive: whether to use recursive bisection, instead of k-way partitioning.
        seed: seeds METIS.

    Returns:
        int64 [num_nodes], the part of each node: its device. If there are no more nodes than
        devices, each node is a part.
    """
    num_parts = len(graph.powers)
    if num_parts == 1 or graph.num_nodes <= num_parts:
        return np.arange(graph.num_nodes) % num_parts
    with _drop_complaints():
        _, parts = pymetis.part_graph(
            num_parts,
            pymetis.CSRAdjacency(graph.start, graph.neighbors),
            vweights=graph.work,
            eweights=scale_to_integers(graph.edge_bytes, _MAX_TOTAL_BYTES),
            tpwgts=(graph.powers / graph.powers.sum()).tolist(),
            recursive=recursive,
            options=pymetis.Options(seed=seed % _NUM_SEEDS, ufactor=imbalance),
        )
    return np.asarray(parts, np.int64)


@contextlib.contextmanager
def _drop_complaints() -> Iterator[None]:
    """Drops what METIS prints where a node is heavier than a part; its parts are valid.

    METIS knows no way to silence it, and prints to the standard output, which is for answers.
    Whatever else is printed meanwhile follows afterwards.
    """
    libc = ctypes.CDLL(None)
    with _STANDARD_OUTPUT_LOCK, tempfile.TemporaryFile() as printed:
        try:
            standard_output = os.dup(1)
        except OSError:  # It is closed.
            yield
            return
        libc.fflush(None)
        os.dup2(printed.fileno(), 1)
        try:
            yield
        finally:
            libc.fflush(None)
            os.dup2(standard_output, 1)
            os.close(standard_output)
            printed.seek(0)
            for line in printed:
                if not line.lstrip().startswith(_COMPLAINT):
                    os.write(1, line)
