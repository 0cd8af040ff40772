"""The work of CPUs beside GPUs: what it is, and whether it is worth a sentence."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.accelerators import find_accelerators, is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.limits import LEAST_DISPLACED_SHARE, Limits
from tf_placer.report.operation_kinds import find_kinds
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_step

__all__ = [
    "NOTABLE_CPU_SHARE",
    "describe_cpu_work",
    "find_cpu_work",
    "find_secs_without_cpus",
    "is_shorter_by_cpus",
    "leans_on_cpus",
    "name_work",
]

#: From this share of the step on, a sentence says why a CPU beside GPUs computes.
NOTABLE_CPU_SHARE = 0.1
# A step that is longer by less is as long.
_LEAST_GAIN = 1.01
# The kinds of work that sentences name in the plural; see `operation_kinds`.
_PLURALS = {
    "convolution": "convolutions",
    "lookup": "lookups",
    "matrix product": "matrix products",
    "other": "small operations of many kinds",
    "update": "updates of variables",
}


def find_cpu_work(problem: PlacementProblem, placement: np.ndarray) -> str:
    """Finds the kind of most work on CPUs; "" if most of that work could be on no GPU."""
    gpus = find_accelerators(problem)
    on = placement[problem.groups]
    secs = problem.compute_secs[np.arange(problem.num_operations), on]
    secs = np.where(np.isin(on, gpus), 0.0, secs)
    may_leave = np.isfinite(problem.compute_secs[:, gpus]).any(axis=1)
    movable_secs = np.where(may_leave, secs, 0.0)
    if movable_secs.sum() <= secs.sum() / 2:
        return ""
    kinds = np.array(find_kinds(problem))
    return str(max(np.unique(kinds), key=lambda kind: movable_secs[kinds == kind].sum()))


def find_secs_without_cpus(problem: PlacementProblem, placement: np.ndarray) -> float | None:
    """Finds the step with all work of CPUs on one of the GPUs, the best for it.

    Returns:
        The step in seconds; None if the work fits on none. What no GPU can run stays.
    """
    gpus, legal = find_accelerators(problem), legal_devices(problem)
    is_on_cpu = ~np.isin(placement, gpus)
    moved = [np.where(is_on_cpu & legal[:, gpu], gpu, placement) for gpu in gpus]
    simulated = Simulator(problem, threads=1).simulate(np.stack(moved).astype(np.int32))
    return min(simulated.step_secs[simulated.feasible].tolist(), default=None)


def is_shorter_by_cpus(step_secs: float, secs_without_cpus: float | None) -> bool:
    """Tells whether a step is clearly shorter with the work that CPUs have."""
    return secs_without_cpus is None or secs_without_cpus > _LEAST_GAIN * step_secs


def name_work(kind: str) -> str:
    """Names a kind of work in a sentence."""
    return _PLURALS.get(kind, kind)


def leans_on_cpus(
    problem: PlacementProblem,
    placement: np.ndarray,
    limits: Limits,
    least_share: float = NOTABLE_CPU_SHARE,
) -> bool:
    """Tells whether a CPU beside GPUs has a notable share of the step, not for want of memory.

    Args:
        problem: the problem.
        placement: int32 [num_groups].
        limits: the limits of the placement.
        least_share: the share of the step that is notable.

    Returns:
        False without GPUs, and if most of that work could be on none.
    """
    if not any(map(is_gpu, problem.devices)) or limits.displaced_share >= LEAST_DISPLACED_SHARE:
        return False
    is_notable = _find_cpu_share(problem, limits) >= least_share
    return is_notable and find_cpu_work(problem, placement) != ""


def _find_cpu_share(problem: PlacementProblem, limits: Limits) -> float:
    """Finds the share of the step in which the busiest CPU computes."""
    cpus = [device.name for device in problem.devices if not is_gpu(device)]
    shares = [each.share for each in limits.limits if each.kind == "compute" and each.where in cpus]
    return max(shares, default=0.0)


def describe_cpu_work(
    problem: PlacementProblem,
    placement: np.ndarray,
    limits: Limits,
    gpus_only_secs: float | None = None,
) -> str | None:
    """Says, as a clause, that a step leans on a CPU where the memory of GPUs is not short.

    Args:
        problem: the problem.
        placement: int32 [num_groups].
        limits: the limits of the placement.
        gpus_only_secs: the step that was found without the work of CPUs; None if not searched.

    Returns:
        None if no CPU has a notable share of the step, if GPUs could not do its work or have no
        room for it, and without GPUs.
    """
    if not leans_on_cpus(problem, placement, limits):
        return None
    share, work = _find_cpu_share(problem, limits), find_cpu_work(problem, placement)
    what = f"computes in {share:.0%} of the step, mostly {name_work(work)}"
    if gpus_only_secs is not None:
        return (
            f"{what}; the best step found without that, on GPUs alone, takes "
            f"{format_step(gpus_only_secs)}: to plan so, pin '*' to '/GPU:*'"
        )
    without_secs = find_secs_without_cpus(problem, placement)
    if without_secs is None:
        return f"{what}, which fit on no GPU in addition; a slower CPU makes the step longer"
    without = format_step(without_secs)
    if not is_shorter_by_cpus(limits.step_secs, without_secs):
        is_shorter = without_secs is not None and _LEAST_GAIN * without_secs < limits.step_secs
        longer = "even shorter" if is_shorter else "no longer"
        return f"{what}; with all of that on a GPU the step is {longer}: {without}"
    return (
        f"{what}, because the step is shorter so on the CPU of the machine's description; with all "
        f"of that on a GPU the step is {without}; to plan without the CPU, pin '*' to '/GPU:*'"
    )
