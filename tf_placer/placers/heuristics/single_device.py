"""A placer of everything on one device."""

from __future__ import annotations

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.heuristics.candidate_list import CandidateList

__all__ = ["SingleDevice"]


class SingleDevice(CandidateList):
    """Proposes each device for everything: the others in their order, and device 0 last.

    Device 0 comes last, because it is the CPU of the process that holds the session: beside GPUs, a
    step there takes longer than those on all other devices together.

    Groups that may not go to the device stay on their first legal device, as operations without a
    GPU kernel stay on the CPU in the papers' Single-GPU.

    References:
        Mirhoseini et al., Device Placement Optimization with Reinforcement Learning, ICML 2017,
        section 4.2.
    """

    name = "single_device"

    def __init__(self, groups: GroupGraph, legal: np.ndarray, *, seed: int = 0) -> None:
        """Makes the proposals; see `Placer`."""
        devices = np.roll(np.arange(legal.shape[-1]), -1)
        candidates = (np.full(groups.num_groups, device) for device in devices)
        super().__init__(groups, legal, seed=seed, candidates=candidates)
