"""Where the search starts: what every placer that does not search proposes."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.placer import Placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices

__all__ = ["starting_placements"]

# More proposals of one placer than this are not asked for.
_MAX_PROPOSALS = 64
# Module, class, whether it is made for a problem, and how many of its proposals come before the
# next placer has its turn; the cheap ones first, because a short search does not get to all.
_PLACERS = (
    ("single_device", "SingleDevice", False, 1),
    ("contiguous", "Contiguous", False, _MAX_PROPOSALS),
    ("branches", "Branches", True, _MAX_PROPOSALS),
    ("stretches", "Stretches", True, _MAX_PROPOSALS),
    ("greedy_fill", "GreedyFill", True, 1),
    ("topological", "Topological", True, 1),
    ("metis_partition", "MetisPartition", True, 1),
    ("scotch_partition", "MinCut", True, 1),
    ("m_topo", "MTopo", True, 1),
    ("m_etf", "MEtf", True, 1),
    ("heft", "Heft", True, 1),
)


def starting_placements(
    problem: PlacementProblem, groups: GroupGraph, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Proposes the placements of all heuristics: those of all in turn, and then the others.

    Args:
        problem: what is placed.
        groups: its groups.
        seed: of the heuristics.

    Yields:
        The name of a heuristic, and int32 [num_groups]. The same placement may come several times.
    """
    legal = legal_devices(problem)
    later: list[tuple[Placer, int]] = []
    for module_name, class_name, needs_problem, at_once in _PLACERS:
        module = importlib.import_module(f"tf_placer.placers.heuristics.{module_name}")
        arguments = {"problem": problem} if needs_problem else {}
        try:
            placer: Placer = getattr(module, class_name)(groups, legal, seed=seed, **arguments)
        except ImportError as error:  # A library that is not installed.
            logging.info("no starts of %s: %s", class_name, error)
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
