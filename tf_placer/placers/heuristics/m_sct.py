"""m-SCT: small communication times with limited memory."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.heuristics.favorite_children import favorite_children
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts

__all__ = ["MSct"]


class MSct(MEtf):
    """m-ETF in which devices wait for the favorite child of what they ran last.

    The favorite children of a device set are those of the linear program with links as they are,
    for all weights of the communication.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020; Hanen and
        Munier, An approximation algorithm for scheduling dependent tasks on m processors with small
        communication delays, ETFA 1995.
    """

    name = "m_sct"

    def _favorites(self, costs: ScheduleCosts, allowed: np.ndarray) -> list[int] | None:
        return favorite_children(costs, allowed)[0]
