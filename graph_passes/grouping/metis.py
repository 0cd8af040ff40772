"""Groups of groups by METIS: parts of about equal size between which few bytes pass."""

from __future__ import annotations

import numpy as np
import pymetis

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import in_order
from graph_passes.grouping.undirected import undirected_graph

__all__ = ["metis_groups"]

# METIS adds weights up in 32-bit numbers, unless it was built with larger ones. Half leaves room.
_MOST_WEIGHT = 1 << 30
# Up to which pymetis prefers recursive bisection to partitioning into all parts at once.
_FEW_PARTS = 8
# Seeds are C integers; -1 stands for a default.
_NUM_SEEDS = 1 << 31


def metis_groups(groups: GroupGraph, num_parts: int, seed: int) -> np.ndarray:
    """Cuts the graph of groups into parts of about equally many groups.

    METIS minimizes the bytes between parts. An edge weighs the bytes of both directions, at least
    1; where all edges together weigh more than 2^30, all bytes are divided by the same number and
    rounded down first. More than 8 parts are made at once or, if that leaves any empty, as it may
    with few groups per part, by recursive bisection.

    Args:
        groups: the graph of groups. It need not be connected.
        num_parts: how many parts are asked for; with as many groups or fewer, each is a part.
        seed: of METIS' random choices.

    Returns:
        int32 [num_groups], the part of each group, numbered by their first member. There may be
        fewer than asked for, but none is empty.

    Raises:
        ValueError: num_parts is not positive.

    References:
        A fast and high quality multilevel scheme for partitioning irregular graphs (Karypis and
        Kumar, 1998).
        EAGLE: Expedited Device Placement with Automatic Grouping for Large Models (Lan et al.).
    """
    if num_parts < 1:
        raise ValueError(f"num_parts must be at least 1, not {num_parts}")
    if num_parts >= groups.num_groups:
        return np.arange(groups.num_groups, dtype=np.int32)
    graph = undirected_graph(groups)
    weights = _weights(graph.pair_bytes)
    for recursive in (num_parts <= _FEW_PARTS, True):
        _, parts = pymetis.part_graph(
            num_parts,
            pymetis.CSRAdjacency(graph.start, graph.neighbors),
            eweights=weights,
            recursive=recursive,
            options=pymetis.Options(seed=seed % _NUM_SEEDS),
        )
        if len(set(parts)) == num_parts:
            break
    return in_order(np.asarray(parts))


def _weights(pair_bytes: np.ndarray) -> np.ndarray:
    """Scales bytes to weights.

    Returns:
        int32 [num_ends], positive and at most `_MOST_WEIGHT` in all unless they are all 1.
    """
    total = int(np.maximum(pair_bytes, 1).sum())
    if total > _MOST_WEIGHT:
        # Rounding up to 1 adds less than 1 per edge.
        room = max(_MOST_WEIGHT - len(pair_bytes), 0)
        pair_bytes = np.floor(pair_bytes * (room / total))
    return np.maximum(pair_bytes, 1).astype(np.int32)
