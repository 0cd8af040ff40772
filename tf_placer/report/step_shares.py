"""Shares of the time of a step, by device and by kind of link."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.operation_kinds import OperationKinds
from tf_placer.simulation.simulator import StepTrace

__all__ = ["copy_secs_by_kind", "device_shares", "find_computers"]


def device_shares(trace: StepTrace, kinds: OperationKinds) -> Mapping[str, np.ndarray]:
    """Adds up the time of each device in a step.

    The times of a device that runs several operations at a time are divided by its slots, so that
    they add up to the step.

    Returns:
        float64 [num_devices] each, seconds of "forward", "backward and update" and "waiting", or
        without a backward pass of "computing" and "waiting".
    """
    problem = trace.problem
    secs = trace.end_secs - trace.start_secs
    slots = np.array([device.slots for device in problem.devices], float)
    parts = {}
    masks = {"forward": ~kinds.backward, "backward and update": kinds.backward}
    if not kinds.has_backward:
        masks = {"computing": ~kinds.backward}
    for part, mask in masks.items():
        parts[part] = (
            np.bincount(trace.operation_devices[mask], secs[mask], minlength=problem.num_devices)
            / slots
        )
    waiting = trace.step_secs - sum(parts.values())
    # Rounding leaves a device that never waits a remainder.
    parts["waiting"] = np.where(waiting > 1e-9 * trace.step_secs, waiting, 0.0)
    return parts


def find_computers(problem: PlacementProblem) -> list[str] | None:
    """Finds the computer of each device by its task, "/job:worker/replica:0/task:0".

    Returns:
        The task of each device; None if there is one task only, or each has one device, as workers
        on the cores of one computer have.
    """
    tasks = [device.name.partition("/device:")[0] for device in problem.devices]
    return tasks if 1 < len(set(tasks)) < len(tasks) else None


def copy_secs_by_kind(trace: StepTrace) -> dict[str, float]:
    """Adds up the seconds of transfers by kind of source and destination: "K80 → CPU".

    Those between computers are apart: "K80 → K80, network".
    """
    devices, transfers = trace.problem.devices, trace.transfers
    computers = find_computers(trace.problem) or [""] * len(devices)
    secs: dict[str, float] = collections.defaultdict(float)
    took = (transfers.end_secs - transfers.start_secs).tolist()
    ends = zip(transfers.sources.tolist(), transfers.destinations.tolist(), took, strict=True)
    for source, destination, each in ends:
        kind = f"{devices[source].kind} → {devices[destination].kind}"
        is_near = computers[source] == computers[destination]
        secs[kind if is_near else f"{kind}, network"] += each
    return dict(secs)
