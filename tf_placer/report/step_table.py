"""Tables of a simulated step: its time, its memory, and its lower bound."""

from __future__ import annotations

import collections
import textwrap
from collections.abc import Iterable, Mapping

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.report.device_labels import device_labels, shorten_middle
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.simulation.critical_path import PathItem, Wait
from tf_placer.simulation.lower_bounds import LowerBounds
from tf_placer.simulation.step_report import StepReport
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["step_table"]

_WIDTH = 100
_OPERATION_WIDTH = 60
_MAX_LINKS = 5
_MAX_KINDS = 8
_MAX_HOLDERS = 3
_TRANSFERS = {"transfer": "transfer", "control": "signal"}
_REASONS: dict[Wait, str] = {
    "input": "inputs",
    "transfer": "transfers",
    "device": "slots of devices",
    "channel": "channels",
}


def step_table(report: StepReport, bounds: LowerBounds, problem: PlacementProblem) -> str:
    """Formats a step as tables, in lines of at most 100 characters, without a final newline.

    Args:
        report: the report on the step.
        bounds: the lower bounds of its problem.
        problem: the problem.
    """
    labels = device_labels([device.name for device in report.devices])
    parts = [
        _summary(report, bounds, labels),
        _devices(report, labels),
        _links(report, labels),
        _path(report, labels, _name_operations(problem)),
        _memory(report, labels),
    ]
    return "\n\n".join(part for part in parts if part)


def _summary(report: StepReport, bounds: LowerBounds, labels: Mapping[str, str]) -> str:
    # Other kinds of bounds are named without their value, which keeps the line short.
    is_simple = bounds.binding in ("critical path", "work")
    line = (
        f"step {format_step(report.step_secs)}, at least {format_step(bounds.step_secs)} "
        f"({'' if is_simple else f'{bounds.binding}; '}"
        f"critical path {format_step(bounds.critical_path_secs)}, "
        f"work {format_step(bounds.work_secs)})"
    )
    if bounds.step_secs > 0:
        line += f": {report.step_secs / bounds.step_secs:.3f} × the bound"
    lines = [line]
    lines += [
        f"does not fit: {labels[device.name]} holds {format_bytes(device.peak_bytes)} "
        f"of at most {format_bytes(device.memory_bytes)}"
        for device in report.devices
        if device.peak_bytes > device.memory_bytes
    ]
    if not bounds.fits:
        lines.append(
            f"no placement fits: {format_bytes(bounds.resident_bytes)} are resident, "
            f"the devices hold {format_bytes(bounds.memory_bytes)}"
        )
    return "\n".join(lines)


def _devices(report: StepReport, labels: Mapping[str, str]) -> str:
    rows = [
        [
            labels[device.name],
            device.operations,
            format_step(device.busy_secs),
            _share(device.busy_secs, report.step_secs),
            format_step(device.compute_secs),
            format_step(device.copy_secs),
            format_bytes(device.peak_bytes),
            format_bytes(device.memory_bytes),
        ]
        for device in report.devices
    ]
    headers = ["device", "operations", "busy", "of step", "compute", "copying", "peak", "memory"]
    return table(headers, rows, "lrrrrrrr")


def _links(report: StepReport, labels: Mapping[str, str]) -> str:
    links = sorted(report.links, key=lambda link: -link.busy_secs)
    if not links:
        return ""
    rows = [
        [
            f"{labels[link.source]} -> {labels[link.destination]}",
            link.transfers,
            format_bytes(link.bytes),
            format_step(link.busy_secs),
            format_step(link.waiting_secs),
        ]
        for link in links[:_MAX_LINKS]
    ]
    text = table(["link", "transfers", "bytes", "busy", "waiting"], rows, "lrrrr")
    others = links[_MAX_LINKS:]
    if others:
        text += (
            f"\nand {len(others)} more with {sum(link.transfers for link in others)} transfers, "
            f"{format_bytes(sum(link.bytes for link in others))}, "
            f"{format_step(sum(link.busy_secs for link in others))}"
        )
    return text


def _path(report: StepReport, labels: Mapping[str, str], kinds: Mapping[str, str]) -> str:
    waits = collections.Counter(item.waited_for for item in report.critical_path)
    reasons = [f"{waits[reason]} for {text}" for reason, text in _REASONS.items() if waits[reason]]
    lines = [
        f"critical path: {format_step(report.path_compute_secs)} of operations "
        f"({_share(report.path_compute_secs, report.step_secs)}), "
        f"{format_step(report.path_transfer_secs)} of transfers "
        f"({_share(report.path_transfer_secs, report.step_secs)})"
    ]
    if reasons:
        lines.append(f"waits on it: {', '.join(reasons)}")
    alike: dict[tuple[str, str], list[PathItem]] = {}
    for item in report.critical_path:
        alike.setdefault(_name_kind(item, labels, kinds), []).append(item)
    by_time = sorted(alike.items(), key=lambda each: -_sum_secs(each[1]))
    rows = []
    for (kind, place), items in by_time[:_MAX_KINDS]:
        secs, longest = _sum_secs(items), max(items, key=lambda item: item.secs)
        share = _share(secs, report.step_secs)
        rows.append([kind, place, str(len(items)), format_step(secs), share, longest.operation])
    headers = ["on the critical path", "where", "number", "time", "of step", "longest"]
    columns = list(zip(headers, *rows, strict=True))[:-1]
    used = sum(max(map(len, column)) + 2 for column in columns)
    rows = [[*row[:-1], shorten_middle(row[-1], _WIDTH - used)] for row in rows]
    lines.append(table(headers, rows, "llrrrl"))
    others = [item for _, items in by_time[_MAX_KINDS:] for item in items]
    if others:
        noun = "other" if len(others) == 1 else "others"
        lines.append(f"and {len(others)} {noun}, {format_step(_sum_secs(others))}")
    return "\n".join(lines)


def _name_operations(problem: PlacementProblem) -> dict[str, str]:
    """Names the kind of each operation, or its type if it is of no kind that has a name."""
    kinds = operation_kinds(problem).kinds
    types = problem.operation_types or kinds
    return {
        name: kind if kind != "other" else op_type
        for name, kind, op_type in zip(problem.operation_names, kinds, types, strict=True)
    }


def _name_kind(
    item: PathItem, labels: Mapping[str, str], kinds: Mapping[str, str]
) -> tuple[str, str]:
    """Names the kind of work of an item, and its device or link."""
    device = labels[item.device]
    if item.destination is not None:
        return _TRANSFERS[item.kind], f"{device} -> {labels[item.destination]}"
    return kinds[item.operation], device


def _sum_secs(items: Iterable[PathItem]) -> float:
    return sum(item.secs for item in items)


def _memory(report: StepReport, labels: Mapping[str, str]) -> str:
    """Formats what the device holds at its peak that is the fullest."""
    fullest = max(report.devices, key=lambda each: each.peak_bytes / max(each.memory_bytes, 1))
    if not fullest.peak_bytes:
        return ""
    parts = {
        "for the whole step": fullest.resident_bytes,
        "outputs": fullest.output_bytes,
        "copies from other devices": fullest.copy_bytes,
        "temporary": fullest.temporary_bytes,
        "lost between blocks": fullest.unused_bytes,
    }
    listed = ", ".join(f"{format_bytes(size)} {name}" for name, size in parts.items() if size)
    rows = [
        [
            holder.kind,
            shorten_middle(holder.operation, _OPERATION_WIDTH),
            format_bytes(holder.bytes),
        ]
        for holder in fullest.holders[:_MAX_HOLDERS]
    ]
    lines = [
        f"fullest is {labels[fullest.name]}, {format_bytes(fullest.peak_bytes)} at "
        f"{format_step(fullest.peak_secs)}:",
        *textwrap.wrap(listed, _WIDTH, initial_indent="    ", subsequent_indent="    "),
    ]
    if rows:
        lines.append(table(["at its peak", "of", "bytes"], rows, "llr"))
    return "\n".join(lines)


def _share(part_secs: float, step_secs: float) -> str:
    return f"{part_secs / step_secs:.1%}" if step_secs > 0 else "-"
