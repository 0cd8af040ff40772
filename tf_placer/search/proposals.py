"""Asking placers for placements."""

from __future__ import annotations

import numpy as np

from tf_placer.placers.placer import Placer

__all__ = ["proposed"]


def proposed(placer: Placer, count: int) -> np.ndarray:
    """Asks a placer for placements, and checks that they are no more than it was asked for.

    Args:
        placer: who proposes.
        count: how many placements at most.

    Returns:
        int32 [n, num_groups]; n is 0 if it has nothing more to propose.

    Raises:
        ValueError: the placer breaks its contract.
    """
    proposal = np.asarray(placer.propose(count))
    if proposal.size and (proposal.ndim != 2 or len(proposal) > count):
        raise ValueError(
            f"placer {placer.name!r} was asked for up to {count} placements and proposed an array "
            f"of shape {proposal.shape}"
        )
    return proposal.astype(np.int32, copy=False)
