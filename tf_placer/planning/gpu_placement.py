"""The search for a placement that leaves the CPUs beside GPUs without work, where it is as fast.

The computed speed of a CPU is less certain than that of a GPU, and the input pipeline needs it,
too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import forbid_devices, legal_devices
from tf_placer.report.cpu_work import leans_on_cpus
from tf_placer.report.limits import find_limits

__all__ = ["prefer_gpus", "search_on_gpus"]

# A factor that hardly shows beside the step of another machine.
_HARDLY_SLOWER = 1.002


def search_on_gpus(
    problem: PlacementProblem,
    groups: GroupGraph,
    best: Candidate,
    *,
    max_secs: float,
    seed: int,
) -> np.ndarray | None:
    """Searches for a placement with all work on GPUs that any of them can do.

    Args:
        problem: the problem.
        groups: its groups.
        best: the best placement so far.
        max_secs: time limit in seconds.
        seed: seed of the search.

    Returns:
        int32 [num_groups]; None where CPUs have no notable share of the step, or have it for want
        of memory.

    Raises:
        KeyboardInterrupt: the search was interrupted.
    """
    if best.excess_bytes or max_secs <= 0 or not _leans_on_cpus(problem, best):
        return None
    gpus = find_accelerators(problem)
    cpus = np.setdiff1d(np.arange(problem.num_devices), gpus)
    legal, is_on_cpu = legal_devices(problem), np.isin(best.placement, cpus)
    moved = [np.where(is_on_cpu & legal[:, gpu], gpu, best.placement) for gpu in gpus]
    if len(gpus) == 1:
        return moved[0].astype(np.int32)
    result = coarse_to_fine_search(
        forbid_devices(problem, cpus),
        groups,
        max_secs=max_secs,
        starts=[("on a GPU", row.astype(np.int32)) for row in moved],
        seed=seed,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    return result.best.placement


def prefer_gpus(
    problem: PlacementProblem, best: Candidate, candidates: Sequence[Candidate]
) -> Candidate:
    """Chooses a placement that leaves CPUs without work, if it is hardly slower than the best.

    Args:
        problem: the problem.
        best: the fastest placement.
        candidates: others.
    """
    if best.excess_bytes or not _leans_on_cpus(problem, best):
        return best
    limit_secs = _HARDLY_SLOWER * best.step_secs
    as_fast = [
        each
        for each in candidates
        if not each.excess_bytes
        and each.step_secs <= limit_secs
        and not _leans_on_cpus(problem, each)
    ]
    return min(as_fast, key=lambda each: each.rank, default=best)


def _leans_on_cpus(problem: PlacementProblem, candidate: Candidate) -> bool:
    placement = candidate.placement
    return leans_on_cpus(problem, placement, find_limits(problem, placement))
