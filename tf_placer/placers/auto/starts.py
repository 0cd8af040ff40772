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

# Module, class, and whether it is made for a problem; the cheap ones first, because a short search
# does not get to all.
_PLACERS = (
    ("single_device", "SingleDevice", False),
    ("contiguous", "Contiguous", False),
    ("greedy_fill", "GreedyFill", True),
    ("topological", "Topological", True),
    ("metis_partition", "MetisPartition", True),
    ("scotch_partition", "MinCut", True),
    ("m_topo", "MTopo", True),
    ("m_etf", "MEtf", True),
    ("heft", "Heft", True),
)
# More proposals of one placer than this are not asked for.
_MAX_PROPOSALS = 64


def starting_placements(
    problem: PlacementProblem, groups: GroupGraph, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Placements of all heuristics.

    Args:
        problem: what is placed.
        groups: its groups.
        seed: of the heuristics.

    Yields:
        The name of a heuristic, and int32 [num_groups]. The same placement may come several times.
    """
    legal = legal_devices(problem)
    for module_name, class_name, needs_problem in _PLACERS:
        module = importlib.import_module(f"tf_placer.placers.heuristics.{module_name}")
        arguments = {"problem": problem} if needs_problem else {}
        try:
            placer: Placer = getattr(module, class_name)(groups, legal, seed=seed, **arguments)
        except ImportError as error:  # A library that is not installed.
            logging.info("no starts of %s: %s", class_name, error)
            continue
        # One by one: whoever takes them may stop between any two.
        for number in range(_MAX_PROPOSALS):
            proposed = placer.propose(number + 1)
            if len(proposed) <= number:
                break
            yield placer.name, proposed[number].astype(np.int32)
