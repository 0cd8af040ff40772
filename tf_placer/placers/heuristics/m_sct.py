"""m-SCT: small communication times with limited memory."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.heuristics.favorite_children import find_favorite_children
from tf_placer.placers.heuristics.m_etf import MEtf
from tf_placer.placers.heuristics.schedule_costs import ScheduleCosts

__all__ = ["MSct"]


class MSct(MEtf):
    """m-ETF in which devices wait for the favorite child of their last operation.

    The linear program of the favorite children uses unweighted links, whatever the weight of the
    communication in the schedule.

    References:
        Jeon et al., Baechi: Fast Device Placement of Machine Learning Graphs, SoCC 2020; Hanen and
        Munier, An approximation algorithm for scheduling dependent tasks on m processors with small
        communication delays, ETFA 1995.
    """

    name = "m_sct"

    def _find_favorites(self, costs: ScheduleCosts, allowed: np.ndarray) -> list[int] | None:
        return find_favorite_children(costs, allowed)[0]
