"""Where the search starts: what every placer that does not search proposes."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Sequence

import numpy as np
from absl import logging

from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.grouping.merged_groups import in_order, merge_group_graph
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
    problem: PlacementProblem,
    groups: GroupGraph,
    memberships: Sequence[np.ndarray],
    seed: int,
) -> Iterator[tuple[str, np.ndarray]]:
    """Placements of all heuristics, for clusters of groups and for single groups.

    Args:
        problem: what is placed.
        groups: its groups.
        memberships: int [num_groups] each, the cluster of every group.
        seed: of the heuristics.

    Yields:
        The name of a heuristic, and int32 [num_groups]. The same placement may come several times.
    """
    views = [(problem, groups, np.arange(groups.num_groups))]
    for membership in memberships:
        clusters = in_order(np.unique(membership, return_inverse=True)[1].astype(np.int32))
        legal = np.ones([clusters.max() + 1, problem.num_devices], np.bool_)
        np.logical_and.at(legal, clusters, legal_devices(problem))
        # Clusters that cannot stay together are of use for moves only.
        if legal.any(axis=1).all():
            merged = dataclasses.replace(problem, groups=clusters[problem.groups])
            views.append((merged, merge_group_graph(groups, clusters), clusters))
    for module_name, class_name, needs_problem in _PLACERS:
        module = importlib.import_module(f"tf_placer.placers.heuristics.{module_name}")
        for view, view_groups, clusters in reversed(views):
            arguments = {"problem": view} if needs_problem else {}
            try:
                placer: Placer = getattr(module, class_name)(
                    view_groups, legal_devices(view), seed=seed, **arguments
                )
            except ImportError as error:  # A library that is not installed.
                logging.info("no starts of %s: %s", class_name, error)
                break
            # One by one: whoever takes them may stop between any two.
            for number in range(_MAX_PROPOSALS):
                proposed = placer.propose(number + 1)
                if len(proposed) <= number:
                    break
                yield placer.name, proposed[number][clusters].astype(np.int32)
