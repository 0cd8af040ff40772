"""Tables of the page about a search, as rows of text, and its operations, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_passes.util.messages import plain_text
from tf_placer.report.device_labels import device_labels
from tf_placer.report.memory_curve import MemoryPoint
from tf_placer.report.operation_kinds import OperationKinds, strip_calls
from tf_placer.report.page.run_view import ComparedPlacement, RunView, StepView
from tf_placer.report.step_boxes import property_colors
from tf_placer.report.step_shares import device_shares
from tf_placer.text.units import format_bytes, format_step

__all__ = [
    "make_comparison_rows",
    "make_device_headers",
    "make_device_rows",
    "make_link_rows",
    "make_memory_rows",
    "make_operation_columns",
    "omit_repeated_columns",
]


def make_comparison_rows(
    compared: Sequence[ComparedPlacement], bound_secs: float | None
) -> list[dict[str, Any]]:
    """Makes the rows of compared placements."""
    rows = []
    for each in compared:
        low, high = each.interval or (None, None)
        rows.append(
            {
                "label": each.label,
                "is_found": each.is_found,
                "step": "" if each.step_secs is None else format_step(each.step_secs),
                "predicted": ""
                if each.predicted_secs is None
                else format_step(each.predicted_secs),
                "speedup": "" if each.speedup is None else f"{each.speedup:.3f}x",
                "interval": "" if low is None or high is None else f"{low:.3f} to {high:.3f}",
                "to_bound": (
                    f"{each.step_secs / bound_secs:.2f}x" if each.step_secs and bound_secs else ""
                ),
                "basis": each.basis,
            }
        )
    return rows


def make_device_headers(view: StepView, kinds: OperationKinds) -> list[str]:
    """Makes the headers of the rows of devices."""
    shares = device_shares(view.trace, kinds)
    return ["device", "operations", "busy", *shares, "copying", "peak memory", "memory"]


def make_device_rows(view: StepView, kinds: OperationKinds) -> list[tuple[str, ...]]:
    """Makes the rows of the devices of a step."""
    shares = device_shares(view.trace, kinds)
    labels = device_labels([device.name for device in view.report.devices])
    step_secs = max(view.report.step_secs, 1e-300)
    return [
        (
            labels[device.name],
            f"{device.operations:,}",
            f"{device.busy_secs / step_secs:.0%}",
            *(format_step(secs[number]) for secs in shares.values()),
            format_step(device.copy_secs),
            format_bytes(device.peak_bytes),
            format_bytes(device.memory_bytes),
        )
        for number, device in enumerate(view.report.devices)
    ]


def make_link_rows(view: StepView) -> list[tuple[str, ...]]:
    """Makes the rows of the links that carry anything in a step, the busiest first."""
    labels = device_labels([device.name for device in view.report.devices])
    links = sorted(view.report.links, key=lambda link: -link.busy_secs)
    return [
        (
            f"{labels[link.source]} → {labels[link.destination]}",
            f"{link.transfers:,}",
            format_bytes(link.bytes),
            format_step(link.busy_secs),
            format_step(link.waiting_secs),
        )
        for link in links
    ]


def make_memory_rows(points: Sequence[MemoryPoint]) -> list[tuple[str, str, str]]:
    """Makes the rows of a memory curve: the peak, the step, and how much longer that is."""
    return [
        (
            format_bytes(point.peak_bytes),
            format_step(point.step_secs),
            f"{point.step_secs / max(points[0].step_secs, 1e-300) - 1.0:.1%}",
        )
        for point in points
    ]


def make_operation_columns(view: RunView, kinds: OperationKinds) -> dict[str, Any]:
    """Collects the properties of the operations, a column each; times are in µs."""
    assert view.problem is not None
    problem = view.problem
    labels = device_labels([device.name for device in problem.devices])
    names = sorted(set(kinds.kinds))
    number = {name: i for i, name in enumerate(names)}
    short = [plain_text(strip_calls(name)) for name in problem.operation_names]
    full = [plain_text(name) for name in problem.operation_names]
    columns: dict[str, Any] = {
        "names": short,
        # Names without calls are in the page only once.
        "fullNames": full if full != short else [],
        "kindNames": names,
        "kinds": [number[kind] for kind in kinds.kinds],
        "backward": kinds.backward.astype(int).tolist() if kinds.has_backward else [],
        "layerNames": list(kinds.layer_names),
        "layers": kinds.layers.tolist(),
        "groups": problem.groups.tolist(),
        "deviceNames": [labels[device.name] for device in problem.devices],
        "colors": property_colors(problem, kinds, names),
        "steps": [],
    }
    for step in view.steps:
        trace = step.trace
        columns["steps"].append(
            {
                "label": step.label,
                "devices": trace.operation_devices.tolist(),
                "start": _us(trace.start_secs),
                "secs": _us(trace.end_secs - trace.start_secs),
                "waited": _us(trace.start_secs - trace.ready_secs),
            }
        )
    return columns


def omit_repeated_columns(runs: Sequence[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Leaves out of later runs what is as in the first run that has columns.

    Args:
        runs: the columns of each run, from `make_operation_columns`; None for a run without.

    Returns:
        The columns. Columns that are as in the first run are missing in later runs, and steps that
        are as in the first run at the same position are None.
    """
    first = next((run for run in runs if run is not None), None)
    if first is None:
        return list(runs)
    return [run if run is None or run is first else _omit_repeated(run, first) for run in runs]


def _omit_repeated(run: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    columns = {key: value for key, value in run.items() if value != first[key]}
    columns["steps"] = [
        None if number < len(first["steps"]) and step == first["steps"][number] else step
        for number, step in enumerate(run["steps"])
    ]
    return columns


def _us(secs: np.ndarray) -> list[float]:
    # Integers keep the page smaller: "12.0" is longer than "12".
    rounded = np.round(secs * 1e6, 1).tolist()
    return [int(value) if value == int(value) else value for value in rounded]
