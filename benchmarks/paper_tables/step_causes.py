"""Why a simulated step takes longer than the lower bound, in one word and in seconds.

The seconds above the bound are told apart by simulating the same placement again on machines that
lack one obstacle:

- transfers: what the step loses where every transfer takes no time.
- turns: what it then still takes beyond its busiest device, its longest chain of operations and the
  bound. Devices wait for each other, as where one part of a chain after the other is on another
  device.
- imbalance: what the busiest device has to do beyond the bound, or chain: what the longest chain of
  operations takes beyond it on the devices that they are on. The larger of the two counts.

Where that device, or most of that chain, is a CPU, the cause is "slow device". Where devices hold
more than they can, it is "out of memory", and the step is what it would take with more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import step_report

__all__ = ["Cause", "StepCauses", "break_even_factor", "step_causes", "with_slower_links"]

Cause = Literal[
    "out of memory", "at the bound", "transfers", "turns", "imbalance", "chain", "slow device"
]

# A step this close to the bound needs no cause.
_AT_BOUND = 1.05
# Takes no measurable time for anything that fits into a computer.
_FREE_BYTES_PER_SEC = 1e30
_MAX_FACTOR = 1e4
_PRECISION = 1.01


@dataclasses.dataclass(frozen=True)
class StepCauses:
    """A simulated step and what it loses where.

    Attributes:
        step_secs: how long it takes.
        bound_secs: no placement takes less.
        fits: whether no device holds more than it can.
        free_secs: how long it takes where transfers take no time.
        busiest_secs: what the busiest device has to do.
        chain_secs: the longest chain of operations on the devices that they are on, if neither
            transfers nor other operations hold it up.
        on_cpu: whether the larger of the last two is, for the most part, the work of a CPU.
        busy: for each device, the share of the step in which it works.
        sent_bytes: what goes from device to device.
        num_transfers: how many tensors and signals do.
        fullest: name of the device that holds the largest share of its memory.
        full: the share of its memory that it holds at its peak.
    """

    step_secs: float
    bound_secs: float
    fits: bool
    free_secs: float
    busiest_secs: float
    chain_secs: float
    on_cpu: bool
    busy: Sequence[float]
    sent_bytes: int
    num_transfers: int
    fullest: str
    full: float

    @property
    def losses(self) -> dict[str, float]:
        """Seconds above the bound by what they are lost to; they add up to all of them.

        The first is negative where the step is longer without transfers, as can happen because
        operations then start in another order.
        """
        at_least_secs = max(self.busiest_secs, self.chain_secs, self.bound_secs)
        last = "imbalance" if self.busiest_secs >= self.chain_secs else "chain"
        return {
            "transfers": self.step_secs - self.free_secs,
            "turns": self.free_secs - at_least_secs,
            last: at_least_secs - self.bound_secs,
        }

    @property
    def cause(self) -> Cause:
        """The largest loss."""
        if not self.fits:
            return "out of memory"
        if self.step_secs <= _AT_BOUND * self.bound_secs:
            return "at the bound"
        losses = self.losses
        largest = max(losses, key=lambda name: losses[name])
        if largest in ("imbalance", "chain") and self.on_cpu:
            return "slow device"
        return largest  # type: ignore[return-value]


def step_causes(problem: PlacementProblem, placement: np.ndarray, bound_secs: float) -> StepCauses:
    """Simulates a step and takes it apart.

    Args:
        problem: what is placed.
        placement: int32 [num_groups], the device index of each group.
        bound_secs: the lower bound of the problem.

    Raises:
        ValueError: an operation is where it may not go.
    """
    trace = Simulator(problem, threads=1).trace(placement)
    report = step_report(trace)
    free = with_slower_links(problem, 0.0)
    free_secs = Simulator(free, memory=False, threads=1).simulate(placement[None]).step_secs[0]
    endless = dataclasses.replace(
        free,
        devices=tuple(
            dataclasses.replace(device, slots=max(problem.num_operations, 1))
            for device in problem.devices
        ),
    )
    chain = step_report(Simulator(endless, threads=1).trace(placement))
    # Several slots share the work of a device.
    work_secs = [device.compute_secs / device.slots for device in report.devices]
    busiest = int(np.argmax(work_secs))
    on_cpu = _is_cpu(problem, busiest)
    if chain.step_secs > work_secs[busiest]:
        cpu_names = [d.name for k, d in enumerate(problem.devices) if _is_cpu(problem, k)]
        secs = sum(item.secs for item in chain.critical_path if item.device in cpu_names)
        on_cpu = secs > chain.step_secs / 2
    fullest = max(report.devices, key=lambda device: device.peak_bytes / device.memory_bytes)
    return StepCauses(
        step_secs=report.step_secs,
        bound_secs=float(bound_secs),
        fits=report.fits,
        free_secs=float(free_secs),
        busiest_secs=float(work_secs[busiest]),
        chain_secs=chain.step_secs,
        on_cpu=on_cpu,
        busy=[_share(device.busy_secs, report.step_secs) for device in report.devices],
        sent_bytes=int(trace.transfers.bytes.sum()),
        num_transfers=len(trace.transfers.tensors),
        fullest=fullest.name,
        full=fullest.peak_bytes / fullest.memory_bytes,
    )


def with_slower_links(problem: PlacementProblem, factor: float) -> PlacementProblem:
    """Copies the problem with transfers that take `factor` times as long; with 0, no time."""
    return dataclasses.replace(
        problem,
        links=tuple(
            dataclasses.replace(
                link,
                latency_secs=link.latency_secs * factor,
                bandwidth_bytes_per_sec=link.bandwidth_bytes_per_sec / factor
                if factor
                else _FREE_BYTES_PER_SEC,
            )
            for link in problem.links
        ),
    )


def break_even_factor(
    problem: PlacementProblem, placement: np.ndarray, other: np.ndarray
) -> float | None:
    """Finds how many times longer transfers may take until another placement is as fast.

    Args:
        problem: what is placed.
        placement: int32 [num_groups], the faster placement.
        other: int32 [num_groups], the other one.

    Returns:
        The factor within 1 %; infinite if 10,000 times are not enough; None if it is so already.
    """

    def is_faster(factor: float) -> bool:
        simulator = Simulator(with_slower_links(problem, factor), memory=False, threads=1)
        secs = simulator.simulate(np.stack([placement, other])).step_secs
        return bool(secs[0] < secs[1])

    if not is_faster(1.0):
        return None
    low, high = 1.0, 2.0
    while is_faster(high):
        if high >= _MAX_FACTOR:
            return np.inf
        low, high = high, 2 * high
    while high > _PRECISION * low:
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if is_faster(middle) else (low, middle)
    return low


def _is_cpu(problem: PlacementProblem, device: int) -> bool:
    # A described device has the name of its class as its kind.
    known = problem.devices[device]
    return "CPU" in (known.kind, known.name.rsplit("device:", 1)[-1].split(":")[0])


def _share(part_secs: float, step_secs: float) -> float:
    return part_secs / step_secs if step_secs > 0 else 0.0
