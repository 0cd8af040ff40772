"""A placer of everything on the CPU."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList

__all__ = ["SingleCpu"]


class SingleCpu(CandidateList):
    """Proposes device 0, the CPU, for everything.

    Groups that may not go there stay on their first legal device.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2, "Single-CPU".
    """

    name = "single_cpu"

    def __init__(self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0) -> None:
        """Makes the proposal; see `Placer`."""
        super().__init__(
            groups, legal, seed=seed, candidates=[np.zeros(groups.num_groups, np.int32)]
        )
