"""The outcome of a search on a problem, for people and for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tf_placer.placers import AUTO
from tf_placer.placers.auto.auto_search import AutoResult
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels
from tf_placer.report.least_memory import describe_least_memory, describe_offload
from tf_placer.report.limits import Limits
from tf_placer.report.memory_curve import MemoryPoint, MoreMemory
from tf_placer.report.what_if import WhatIf
from tf_placer.search.simulated_search import SearchOutcome
from tf_placer.simulation.host_offload import HostOffload
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_duration, format_step

__all__ = ["format_outcome", "search_table", "search_values"]


def search_table(
    problem: PlacementProblem,
    outcome: SearchOutcome,
    least_bytes: int | None = None,
    offload: HostOffload | None = None,
    limits: Limits | None = None,
) -> str:
    """Formats the outcome of a search, without a final newline.

    Args:
        problem: the problem.
        outcome: the outcome.
        least_bytes: the memory of devices that would be enough; None if it is unknown.
        offload: the step if activations wait on the CPU; None if it is unknown.
        limits: the limits of the placement; None if it does not fit.
    """
    labels = device_labels([device.name for device in problem.devices])
    counts = np.bincount(outcome.assignment, minlength=problem.num_devices).tolist()
    busy = (
        {} if limits is None else {e.where: e.share for e in limits.limits if e.kind == "compute"}
    )
    rows = [
        [
            labels[device.name],
            count,
            f"{busy[device.name]:.0%}" if device.name in busy else "-",
            format_bytes(peak),
            format_bytes(device.memory_bytes),
        ]
        for device, count, peak in zip(problem.devices, counts, outcome.peak_bytes, strict=True)
    ]
    lines = [
        table(["device", "groups", "busy", "peak memory", "memory"], rows, "lrrrr"),
        "",
        f"step:         {format_outcome(outcome)}",
        f"lower bound:  {format_step(outcome.lower_bound_secs)}",
        f"trials:       {outcome.trials:,} of {outcome.placer} in "
        f"{format_duration(outcome.elapsed_secs)}"
        + (", interrupted" if outcome.interrupted else ""),
    ]
    if not outcome.feasible:
        others, condition = "", ""
        if outcome.placer != AUTO:
            # Many placers end by themselves.
            others = f"let {AUTO!r} search (--placer {AUTO}), "
            condition = " if they ended the search"
        line = (
            f"nothing that was tried fits: {others}allow more trials or time{condition}, or take "
            "devices with more memory"
        )
        if least_bytes is not None:
            line += f": {describe_least_memory(problem, least_bytes)}"
        if offload is not None:
            line += f"; {describe_offload(offload)}"
        lines.append(line)
    return "\n".join(lines)


def search_values(
    problem: PlacementProblem,
    outcome: SearchOutcome,
    result: AutoResult | None = None,
    limits: Limits | None = None,
    changes: Sequence[WhatIf] = (),
    least_bytes: int | None = None,
    curve: Sequence[MemoryPoint] = (),
    more: MoreMemory | None = None,
    offload: HostOffload | None = None,
) -> dict[str, Any]:
    """Makes the JSON form of a search.

    Args:
        problem: the problem.
        outcome: the outcome of the search.
        result: the result of `auto`; None for other placers, which compare no candidates.
        limits: the limits of the placement; None if they were not computed.
        changes: the steps on other machines.
        least_bytes: the memory of devices that would be enough; None if it is unknown.
        curve: the steps within less memory.
        more: the memory of each GPU for a step about as short as with unlimited memory.
        offload: the step if activations wait on the CPU.
    """
    candidates = [] if result is None else [("found", result.best), *result.starts]
    return {
        **outcome.to_json(),
        "interrupted": outcome.interrupted,
        "devices": [device.name for device in problem.devices],
        "is_optimal": result is not None and result.is_optimal,
        "candidates": [
            {
                "name": name,
                "step_secs": float(found.step_secs) if np.isfinite(found.step_secs) else None,
                "fits": not found.excess_bytes,
            }
            for name, found in candidates
        ],
        "limits": None if limits is None else dataclasses.asdict(limits),
        "changes": [dataclasses.asdict(change) for change in changes],
        "least_memory_bytes": least_bytes,
        "memory_curve": [dataclasses.asdict(point) for point in curve],
        "more_memory": None if more is None else dataclasses.asdict(more),
        "offload": None if offload is None else dataclasses.asdict(offload),
    }


def format_outcome(outcome: SearchOutcome) -> str:
    """Formats the step time of the best placement, with a note if it does not fit."""
    if outcome.step_secs is None:
        return "none that may run"
    return format_step(outcome.step_secs) + ("" if outcome.feasible else " (does not fit)")
