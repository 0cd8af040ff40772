"""The seconds that a simulated step loses above the lower bound.

The same placement is simulated again on machines that lack one obstacle:

- transfers: what the step loses to them; negative where it is longer without, as can happen because
  operations then start in another order.
- turns: what it takes without transfers beyond its busiest device, its longest chain of operations
  and the bound, because devices wait for each other.
- imbalance: what the busiest device has to do beyond the bound, or chain: what the longest chain of
  operations takes beyond it on the devices that they are on. The larger of the two counts.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import Simulator
from tf_placer.simulation.step_report import step_report

__all__ = ["step_losses"]

# Takes no measurable time for anything that fits into a computer.
_FREE_BYTES_PER_SEC = 1e30


def step_losses(
    problem: PlacementProblem, placement: np.ndarray, bound_secs: float
) -> dict[str, float]:
    """Simulates a step and takes it apart.

    Args:
        problem: what is placed.
        placement: int32 [num_groups], the device index of each group.
        bound_secs: the lower bound of the problem.

    Returns:
        Seconds by what they are lost to; they add up to all above the bound.

    Raises:
        ValueError: an operation is where it may not go.
    """
    report = step_report(Simulator(problem, threads=1).trace(placement))
    free = dataclasses.replace(
        problem,
        links=tuple(
            dataclasses.replace(link, latency_secs=0.0, bandwidth_bytes_per_sec=_FREE_BYTES_PER_SEC)
            for link in problem.links
        ),
    )
    free_secs = Simulator(free, memory=False, threads=1).simulate(placement[None]).step_secs[0]
    # A device with several slots is not asynchronous; without transfers that changes no chain.
    slots = max(problem.num_operations, 1)
    devices = tuple(
        dataclasses.replace(device, slots=slots, is_asynchronous=False, copies_in_stream=False)
        for device in problem.devices
    )
    endless = dataclasses.replace(free, devices=devices)
    chain_secs = Simulator(endless, threads=1).trace(placement).step_secs
    # Several slots share the work of a device.
    busiest_secs = max(device.compute_secs / device.slots for device in report.devices)
    at_least_secs = max(busiest_secs, chain_secs, bound_secs)
    return {
        "transfers": float(report.step_secs - free_secs),
        "turns": float(free_secs - at_least_secs),
        "imbalance" if busiest_secs >= chain_secs else "chain": float(at_least_secs - bound_secs),
    }
