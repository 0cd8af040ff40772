"""Where the search starts: what every placer that does not search proposes."""

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

__all__ = ["starting_placements"]

# More proposals of one placer than this are not asked for.
_MAX_PROPOSALS = 64


def starting_placements(
    problem: PlacementProblem, groups: GroupGraph, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Proposes the placements of all that seed `auto`: those of all in turn, and then the others.

    Args:
        problem: what is placed.
        groups: its groups.
        seed: of the heuristics.

    Yields:
        The name of a heuristic, and int32 [num_groups]. The same placement may come several times.
    """
    legal = legal_devices(problem)
    later: list[tuple[Placer, int]] = []
    for name, entry in PLACERS.items():
        if not entry.seeds_auto:
            continue
        at_once = min(entry.seeds_auto, _MAX_PROPOSALS)
        try:
            placer = make_placer(name, groups, legal, seed=seed, problem=problem)
        except ImportError as error:  # A library that is not installed.
            logging.info("no starts of %s: %s", name, error)
            continue
        yield from _proposals(placer, 0, at_once)
        later.append((placer, at_once))
    for placer, first in later:
        yield from _proposals(placer, first, _MAX_PROPOSALS)


def _proposals(placer: Placer, first: int, end: int) -> Iterator[tuple[str, np.ndarray]]:
    # One by one: whoever takes them may stop between any two.
    for number in range(first, end):
        proposed = placer.propose(number + 1)
        if len(proposed) <= number:
            break
        yield placer.name, proposed[number].astype(np.int32)
