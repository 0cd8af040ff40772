"""Simple placements that a local search begins with."""

from __future__ import annotations

import sys

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.heuristics.contiguous import Contiguous
from tf_placer.placers.heuristics.single_device import SingleDevice

__all__ = ["simple_starts"]


def simple_starts(groups: GroupGraph, legal: np.ndarray, *, seed: int) -> CandidateList:
    """Lists the placements on a single device, then contiguous parts of the layers.

    Args:
        groups: see `Placer`.
        legal: see `Placer`.
        seed: see `Placer`.
    """
    placements = [
        *SingleDevice(groups, legal).propose(sys.maxsize),
        *Contiguous(groups, legal).propose(sys.maxsize),
    ]
    return CandidateList(groups, legal, seed=seed, candidates=placements)
