"""The starts of the search: proposals of the placers whose registry entry has `seeds_auto`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.making import make_placer
from tf_placer.placers.placer import Placer
from tf_placer.placers.registry import PLACERS
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["propose_starts"]

_MAX_PROPOSALS_PER_PLACER = 64


def propose_starts(
    problem: PlacementProblem, groups: GroupGraph, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Proposes the placements of all placers that seed `auto`.

    Each placer first proposes as many placements as its registry entry says. When all placers had
    their turn, each proposes the rest of its placements.

    Args:
        problem: the placement problem.
        groups: its groups.
        seed: seeds the heuristics.

    Yields:
        The name of a heuristic, and int32 [num_groups]. The same placement may come several times.
    """
    legal = legal_devices(problem)
    later: list[tuple[Placer, int]] = []
    for name, entry in PLACERS.items():
        if not entry.seeds_auto:
            continue
        at_once = min(entry.seeds_auto, _MAX_PROPOSALS_PER_PLACER)
        try:
            placer = make_placer(name, groups, legal, seed=seed, problem=problem)
        except ImportError as error:  # A library that is not installed.
            logging.info("no starts of %s: %s", name, error)
            continue
        yield from _generate_proposals(placer, 0, at_once)
        later.append((placer, at_once))
    for placer, first in later:
        yield from _generate_proposals(placer, first, _MAX_PROPOSALS_PER_PLACER)


def _generate_proposals(placer: Placer, first: int, end: int) -> Iterator[tuple[str, np.ndarray]]:
    # Request proposals one by one, because the caller may stop after any of them.
    for number in range(first, end):
        proposed = placer.propose(number + 1)
        if len(proposed) <= number:
            break
        yield placer.name, proposed[number].astype(np.int32)
