"""A machine that is compared: the best step that was found on it, and its limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_placer.placers.auto.candidate import Candidate, simulate_candidates
from tf_placer.problem.accelerators import find_accelerators, is_gpu
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.report.convolutions import compute_convolution_share
from tf_placer.report.cpu_work import (
    NOTABLE_CPU_SHARE,
    find_cpu_work,
    find_secs_without_cpus,
    is_shorter_by_cpus,
)
from tf_placer.report.device_labels import device_labels
from tf_placer.report.least_memory import describe_least_memory, find_needed_memory
from tf_placer.report.limits import LEAST_DISPLACED_SHARE, find_limits
from tf_placer.report.memory_curve import MoreMemory
from tf_placer.report.one_device import place_on_one_of_each_kind, simulate_one_device
from tf_placer.simulation.host_offload import find_offload
from tf_placer.simulation.lower_bounds import lower_bounds
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import StepReport, step_report

__all__ = [
    "AS_WELL_AS",
    "ComparedMachine",
    "compute_cost",
    "count_used",
    "describe_machine",
    "find_fewest",
    "merge_idle",
]

#: Within this factor of a step, another step is as good.
AS_WELL_AS = 1.02
_SECS_PER_HOUR = 3600.0
_COST_STEPS = 1_000_000
_IDLE_SHARE = 0.01
# Estimates of machines with several kinds of accelerators end after that.
_MAX_OFFLOAD_SECS = 3.0


@dataclasses.dataclass(frozen=True)
class ComparedMachine:
    """A machine, and the best step that was found for it.

    Attributes:
        name: the name that the machine was compared by.
        kind: the kinds of its accelerators, such as "A100" or "A100+T4".
        device_type: "GPU", or "device" if the machine has no GPU.
        accelerators: the number of its GPUs; of its devices if it has no GPU.
        step_secs: the simulated step; None if no placement that was tried fits.
        one_device_secs: the step with everything on its fastest accelerator that has room for it;
            None if there is none.
        lower_bound_secs: no placement has a shorter step.
        data_parallel_secs: no data-parallel step is shorter; see `compute_data_parallel_bound`.
        fullest_device: the device with the largest share of its memory in use.
        peak_bytes: the peak memory of that device.
        memory_bytes: the memory of that device.
        idle: the accelerators that compute in less than 1 % of the step.
        spare: the number of accelerators without which a placement was found whose step is at most
            2 % longer; there may be more of them.
        price_per_hour: the price of the machine; None if it was not given.
        offload_secs: an estimate of the step if activations wait on the CPU; None where no memory
            is short, or that does not make the step shorter.
        convolution_share: the share of convolutions in the work.
        cpu_share: the share of the step in which a CPU beside GPUs computes.
        displaced_share: the share of the step in which it does work for which GPUs lack memory.
        cpu_work: the kind of most of its work; "" if it does not shorten the step, or if most of
            it could be on no GPU.
        cpu_work_fits: whether GPUs have room for that work, too.
        gpus_only_secs: the step that was found without that work; None if not searched.
        with_cpu_secs: the step that was found with such work and not chosen, because it is little
            shorter; None otherwise.
        lacks_shared_memory: whether data parallelism lacks memory; see `OneDevice`.
        more_memory_bytes: the memory of each GPU with which a shorter step was found, where a CPU
            works for want of memory; None if not searched.
        more_memory_secs: the step with that memory.
        least_memory_bytes: the memory of devices with which a placement was found, where none fits;
            None if one fits.
        least_memory: the same as a clause, with the names of the devices; "" if one fits.
        is_divided: whether pins keep the graph on several accelerators; see `OneDevice`.
        log_dir: the directory of the plan; None if it is not kept.
        notes: see `PlacementProblem`.
    """

    name: str
    kind: str
    device_type: str
    accelerators: int
    step_secs: float | None
    one_device_secs: float | None
    lower_bound_secs: float
    data_parallel_secs: float | None
    fullest_device: str
    peak_bytes: int
    memory_bytes: int
    idle: tuple[str, ...]
    spare: int
    price_per_hour: float | None = None
    offload_secs: float | None = None
    convolution_share: float = 0.0
    cpu_share: float = 0.0
    displaced_share: float = 0.0
    cpu_work: str = ""
    cpu_work_fits: bool = True
    gpus_only_secs: float | None = None
    with_cpu_secs: float | None = None
    lacks_shared_memory: bool = False
    more_memory_bytes: int | None = None
    more_memory_secs: float | None = None
    least_memory_bytes: int | None = None
    least_memory: str = ""
    is_divided: bool = False
    log_dir: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def needed(self) -> int:
        """The number of accelerators that suffice for a step at most 2 % longer."""
        return self.accelerators - self.spare

    @property
    def speedup(self) -> float | None:
        """The speed-up over one of its accelerators; None if the graph does not fit on one."""
        if self.step_secs is None or self.one_device_secs is None:
            return None
        return self.one_device_secs / max(self.step_secs, 1e-300)

    @property
    def cost_per_million_steps(self) -> float | None:
        """The price of a million steps; None without a price or a step."""
        return compute_cost(self.step_secs, self.price_per_hour)

    @property
    def data_parallel_cost_per_million_steps(self) -> float | None:
        """The least price of a million data-parallel steps; None without a price or a bound."""
        return compute_cost(self.data_parallel_secs, self.price_per_hour)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form."""
        return {
            **dataclasses.asdict(self),
            "fits": self.step_secs is not None,
            "speedup": self.speedup,
            "cost_per_million_steps": self.cost_per_million_steps,
            "data_parallel_cost_per_million_steps": self.data_parallel_cost_per_million_steps,
        }


def describe_machine(
    name: str,
    problem: PlacementProblem,
    placement: np.ndarray,
    price: float | None = None,
    needed: int | None = None,
    least_bytes: int | None = None,
    more: MoreMemory | None = None,
    gpus_only_secs: float | None = None,
) -> ComparedMachine:
    """Simulates a placement, and the best one with everything on one accelerator.

    Args:
        name: the name of the machine.
        problem: the problem on it.
        placement: int32 [num_groups].
        price: the price per hour, or None.
        needed: the number of accelerators that were found to be enough; None if not searched.
        least_bytes: the memory with which a placement was found, if this one does not fit; None if
            not searched.
        more: the memory with which a shorter step was found; None if not searched.
        gpus_only_secs: the step that was found without the work of CPUs; None if not searched.
    """
    accelerators = find_accelerators(problem)
    simulator = Simulator(problem)
    step = step_report(simulator.trace(placement))
    one_device = simulate_one_device(problem)
    labels = device_labels([device.name for device in problem.devices])
    fullest = max(step.devices, key=lambda each: each.peak_bytes / max(each.memory_bytes, 1))
    if needed is None and step.fits:
        merged = [placement, *merge_idle(problem, placement, step)]
        candidates = simulate_candidates(problem, simulator, np.stack(merged).astype(np.int32))
        fewest = find_fewest(problem, candidates, AS_WELL_AS * step.step_secs)
        needed = count_used(problem, fewest)
    if step.fits:
        least_bytes = None
    elif least_bytes is None:
        least_bytes = find_needed_memory(problem, [each.peak_bytes for each in step.devices])
    displaced_share = find_limits(problem, placement).displaced_share if step.fits else 0.0
    offload_secs = None
    if displaced_share >= LEAST_DISPLACED_SHARE or not step.fits:
        crowded = place_on_one_of_each_kind(problem)
        moved = find_offload(problem, crowded, max_secs=_MAX_OFFLOAD_SECS)
        if moved is not None and (not step.fits or moved.step_secs < step.step_secs):
            offload_secs = moved.step_secs
    on_cpus = [
        device.busy_secs
        for index, device in enumerate(step.devices)
        if index not in accelerators.tolist()
    ]
    cpu_share = max(on_cpus, default=0.0) / max(step.step_secs, 1e-300)
    is_cpu_worth_it, cpu_work_fits = False, True
    if cpu_share >= NOTABLE_CPU_SHARE:
        without_secs = find_secs_without_cpus(problem, placement)
        is_cpu_worth_it = is_shorter_by_cpus(step.step_secs, without_secs)
        cpu_work_fits = without_secs is not None
    return ComparedMachine(
        name=name,
        kind="+".join(dict.fromkeys(problem.devices[index].kind for index in accelerators)),
        device_type="GPU" if is_gpu(problem.devices[accelerators[0]]) else "device",
        accelerators=len(accelerators),
        step_secs=step.step_secs if step.fits else None,
        one_device_secs=one_device.secs,
        lower_bound_secs=float(lower_bounds(problem).step_secs),
        data_parallel_secs=one_device.data_parallel_secs,
        is_divided=one_device.is_divided,
        fullest_device=labels[fullest.name],
        peak_bytes=fullest.peak_bytes,
        memory_bytes=fullest.memory_bytes,
        idle=tuple(labels[problem.devices[index].name] for index in _find_idle(problem, step)),
        spare=0 if needed is None else len(accelerators) - needed,
        price_per_hour=price,
        offload_secs=offload_secs,
        convolution_share=compute_convolution_share(problem),
        notes=problem.notes,
        cpu_share=cpu_share,
        displaced_share=displaced_share,
        cpu_work=find_cpu_work(problem, placement) if is_cpu_worth_it else "",
        cpu_work_fits=cpu_work_fits,
        gpus_only_secs=gpus_only_secs,
        lacks_shared_memory=one_device.lacks_shared_memory,
        more_memory_bytes=None if more is None else more.peak_bytes,
        more_memory_secs=None if more is None else more.step_secs,
        least_memory_bytes=least_bytes,
        least_memory="" if least_bytes is None else describe_least_memory(problem, least_bytes),
    )


def compute_cost(step_secs: float | None, price_per_hour: float | None) -> float | None:
    """Computes the price of a million steps; None without a price or a step."""
    if step_secs is None or price_per_hour is None:
        return None
    return price_per_hour / _SECS_PER_HOUR * step_secs * _COST_STEPS


def find_fewest(
    problem: PlacementProblem, candidates: Sequence[Candidate], limit_secs: float
) -> np.ndarray:
    """Finds the placement on the fewest accelerators of those that fit and are fast enough."""
    good = [each for each in candidates if not each.excess_bytes and each.step_secs <= limit_secs]
    return min(good, key=lambda each: count_used(problem, each.placement)).placement


def count_used(problem: PlacementProblem, placement: np.ndarray) -> int:
    """Counts the accelerators that a placement uses, at least one."""
    return max(1, int(np.isin(find_accelerators(problem), placement).sum()))


def _find_idle(problem: PlacementProblem, step: StepReport) -> np.ndarray:
    """Finds the accelerators that compute in less than 1 % of the step."""
    accelerators = find_accelerators(problem)
    least_secs = _IDLE_SHARE * step.step_secs
    is_idle = [step.devices[index].busy_secs < least_secs for index in accelerators]
    return accelerators[is_idle]


def merge_idle(
    problem: PlacementProblem, placement: np.ndarray, step: StepReport
) -> list[np.ndarray]:
    """Lists the placements with the work of idle accelerators on one of the others."""
    legal = legal_devices(problem)
    idle = _find_idle(problem, step)
    is_moved = np.isin(placement, idle)
    return [
        np.where(is_moved, target, placement).astype(np.int32)
        for target in np.setdiff1d(find_accelerators(problem), idle)
        if legal[is_moved, target].all()
    ]
