"""The work of CPUs beside GPUs: what it is, and whether it is worth a sentence."""

from __future__ import annotations

import numpy as np

from tf_placer.problem.accelerators import find_accelerators, is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.limits import LEAST_DISPLACED_SHARE, Limits, move_to_gpus
from tf_placer.report.operation_kinds import find_kinds
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.units import format_step

__all__ = ["NOTABLE_CPU_SHARE", "describe_cpu_work", "find_cpu_work", "name_work"]

#: From this share of the step on, a sentence says why a CPU beside GPUs computes.
NOTABLE_CPU_SHARE = 0.1
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


def name_work(kind: str) -> str:
    """Names a kind of work in a sentence."""
    return _PLURALS.get(kind, kind)


def describe_cpu_work(
    problem: PlacementProblem, placement: np.ndarray, limits: Limits
) -> str | None:
    """Says, as a clause, that a step leans on a CPU where the memory of GPUs is not short.

    Returns:
        None if no CPU has a notable share of the step, if GPUs could not do its work or have no
        room for it, and without GPUs.
    """
    cpus = [device.name for device in problem.devices if not is_gpu(device)]
    shares = [each.share for each in limits.limits if each.kind == "compute" and each.where in cpus]
    share = max(shares, default=0.0)
    if len(cpus) == problem.num_devices or share < NOTABLE_CPU_SHARE:
        return None
    if limits.displaced_share >= LEAST_DISPLACED_SHARE:
        return None
    work = find_cpu_work(problem, placement)
    if not work:
        return None
    moved = Simulator(problem, threads=1).simulate(move_to_gpus(problem, placement)[0])
    without_secs = min(moved.step_secs[moved.feasible].tolist(), default=None)
    what = f"computes in {share:.0%} of the step, mostly {name_work(work)}"
    if without_secs is not None and without_secs < limits.step_secs:
        return f"{what}; with it on a GPU the step is {format_step(without_secs)}"
    without = (
        "on a GPU it does not fit"
        if without_secs is None
        else f"with it on a GPU the step is {format_step(without_secs)}"
    )
    return (
        f"{what}, because the step is shorter so on the CPU of the machine's description; {without}"
    )
