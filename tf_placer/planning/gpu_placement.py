"""The search for a placement that leaves the CPUs beside GPUs without work, where it is near.

The computed speed of a CPU is less certain than that of a GPU. The input pipeline needs the CPU,
too, and so do the launches of all work of GPUs, which the simulator gives no time of the CPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from graph_passes.grouping.group_graph import GroupGraph
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.placers.auto.candidate import Candidate
from tf_placer.placers.auto.coarse_to_fine_search import coarse_to_fine_search
from tf_placer.problem.accelerators import find_accelerators
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import forbid_devices, legal_devices
from tf_placer.report.cpu_work import NOTABLE_CPU_SHARE, leans_on_cpus
from tf_placer.report.limits import find_limits

__all__ = ["WITH_CPU", "prefer_gpus", "replace_best", "search_on_gpus"]

#: The name of the faster placement that was not chosen, because CPUs work in it.
WITH_CPU = "with the CPU"

# A gain by a CPU that is smaller is within what the simulator leaves out.
_LITTLE_SLOWER = 1.1
# A placement in which CPUs compute in less of the step has no work on them.
_HARDLY_A_SHARE = 0.01


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
        max_secs: time limit in seconds; a computer with one GPU needs none.
        seed: seed of the search.

    Returns:
        int32 [num_groups]; None where CPUs have no notable share of the step, or have it for want
        of memory, and without time.

    Raises:
        KeyboardInterrupt: the search was interrupted.
    """
    if best.excess_bytes or not _leans_on_cpus(problem, best):
        return None
    gpus = find_accelerators(problem)
    cpus = np.setdiff1d(np.arange(problem.num_devices), gpus)
    legal, is_on_cpu = legal_devices(problem), np.isin(best.placement, cpus)
    moved = [np.where(is_on_cpu & legal[:, gpu], gpu, best.placement) for gpu in gpus]
    if len(gpus) == 1:
        return moved[0].astype(np.int32)
    if max_secs <= 0:
        return None
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
    """Chooses a placement that leaves CPUs without work, if it is little slower than the best.

    Args:
        problem: the problem.
        best: the fastest placement.
        candidates: others.
    """
    if best.excess_bytes or not _leans_on_cpus(problem, best):
        return best
    limit_secs = _LITTLE_SLOWER * best.step_secs
    near = [
        each
        for each in candidates
        if not each.excess_bytes
        and each.step_secs <= limit_secs
        and not _leans_on_cpus(problem, each, _HARDLY_A_SHARE)
    ]
    return min(near, key=lambda each: each.rank, default=best)


def replace_best(result: AutoResult, best: Candidate) -> AutoResult:
    """Replaces the best placement of a search by the one that was chosen.

    Args:
        result: the search.
        best: the chosen placement; a faster one of the search becomes the candidate `WITH_CPU`.
    """
    former = result.best
    if former.excess_bytes or former.step_secs >= best.step_secs:
        return dataclasses.replace(result, best=best)
    starts = ((WITH_CPU, former), *result.starts)
    return dataclasses.replace(
        result, best=best, starts=starts, is_optimal=False, is_near_bound=False
    )


def _leans_on_cpus(
    problem: PlacementProblem, candidate: Candidate, least_share: float = NOTABLE_CPU_SHARE
) -> bool:
    placement = candidate.placement
    return leans_on_cpus(problem, placement, find_limits(problem, placement), least_share)
