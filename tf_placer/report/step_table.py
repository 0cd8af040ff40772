"""Tables of a simulated step: its time, its memory, and its lower bound."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from tf_placer.report.device_labels import device_labels, shorten_middle
from tf_placer.simulation.critical_path import PathItem, Wait
from tf_placer.simulation.lower_bounds import LowerBounds
from tf_placer.simulation.step_report import DeviceReport, StepReport
from tf_placer.text.table import table
from tf_placer.text.units import format_bytes, format_step

__all__ = ["step_table"]

_WIDTH = 100
_CHANNEL_WIDTH = 10
_OPERATION_WIDTH = 55
_MAX_LINKS = 10
_MAX_SEGMENTS = 20
_MAX_OPERATIONS = 10
_MAX_HOLDERS = 5
_REASONS: dict[Wait, str] = {
    "input": "inputs",
    "transfer": "transfers",
    "device": "slots of devices",
    "channel": "channels",
}


def step_table(report: StepReport, bounds: LowerBounds) -> str:
    """Formats a step as tables, in lines of at most 100 characters, without a final newline.

    Args:
        report: the report on the step.
        bounds: the lower bounds of its problem.
    """
    labels = device_labels([device.name for device in report.devices])
    parts = [
        _summary(report, bounds, labels),
        _devices(report, labels),
        _links(report, labels),
        _path(report, labels),
        _path_operations(report, labels),
        _memory(report, labels),
        _holders(report, labels),
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
            shorten_middle(link.channel or "", _CHANNEL_WIDTH),
        ]
        for link in links[:_MAX_LINKS]
    ]
    text = table(["link", "transfers", "bytes", "busy", "waiting", "channel"], rows, "lrrrrl")
    others = links[_MAX_LINKS:]
    if others:
        text += (
            f"\nand {len(others)} more with {sum(link.transfers for link in others)} transfers, "
            f"{format_bytes(sum(link.bytes for link in others))}, "
            f"{format_step(sum(link.busy_secs for link in others))}"
        )
    return text


@dataclasses.dataclass(frozen=True)
class _PathSegment:
    """Consecutive items of the critical path on one device or link."""

    items: Sequence[PathItem]

    @property
    def secs(self) -> float:
        return self.items[-1].end_secs - self.items[0].start_secs

    def name_place(self, labels: Mapping[str, str]) -> str:
        first = self.items[0]
        device = labels[first.device]
        return f"{device} -> {labels[first.destination]}" if first.destination else device

    def describe(self, width: int) -> str:
        first, last, count = self.items[0], self.items[-1], len(self.items)
        size = format_bytes(sum(item.bytes for item in self.items))
        if count == 1:
            start = {"compute": "", "transfer": f"{size} of ", "control": "signal of "}[first.kind]
            return start + shorten_middle(first.operation, width - len(start))
        if first.kind != "compute":
            return f"{count} transfers, {size}"
        start = f"{count} operations, "
        each = (width - len(start) - len(" to ")) // 2
        names = (shorten_middle(item.operation, each) for item in (first, last))
        return start + " to ".join(names)


def _path(report: StepReport, labels: Mapping[str, str]) -> str:
    places = itertools.groupby(
        report.critical_path, key=lambda item: (item.device, item.destination)
    )
    segments = [_PathSegment(tuple(items)) for _, items in places]
    by_length = sorted(range(len(segments)), key=lambda k: -segments[k].secs)
    shown = [segments[k] for k in sorted(by_length[:_MAX_SEGMENTS])]
    others = [segments[k] for k in by_length[_MAX_SEGMENTS:]]
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
    cells = [
        [format_step(s.items[0].start_secs), format_step(s.secs), s.name_place(labels)]
        for s in shown
    ]
    used = sum(max(map(len, column)) + 2 for column in zip(*cells, strict=True))
    rows = [[*row, s.describe(_WIDTH - used)] for row, s in zip(cells, shown, strict=True)]
    lines.append(table(["start", "time", "where", "what"], rows, "rrll"))
    if others:
        lines.append(f"and {len(others)} shorter, {format_step(sum(s.secs for s in others))}")
    return "\n".join(lines)


def _path_operations(report: StepReport, labels: Mapping[str, str]) -> str:
    operations = [item for item in report.critical_path if item.kind == "compute"]
    operations.sort(key=lambda item: -item.secs)
    rows = [
        [
            shorten_middle(item.operation, _OPERATION_WIDTH),
            labels[item.device],
            format_step(item.secs),
            _share(item.secs, report.step_secs),
        ]
        for item in operations[:_MAX_OPERATIONS]
    ]
    return table(["longest operations on it", "device", "time", "of step"], rows, "llrr")


def _memory(report: StepReport, labels: Mapping[str, str]) -> str:
    rows = [
        [
            labels[device.name],
            format_bytes(device.peak_bytes),
            format_step(device.peak_secs),
            format_bytes(device.resident_bytes),
            format_bytes(device.output_bytes),
            format_bytes(device.copy_bytes),
            format_bytes(device.temporary_bytes),
            format_bytes(device.unused_bytes),
        ]
        for device in _find_devices_in_use(report)
    ]
    headers = ["device", "peak", "at", "resident", "outputs", "copies", "temporary", "unused"]
    if not any(device.unused_bytes for device in report.devices):
        headers, rows = headers[:-1], [row[:-1] for row in rows]
    return table(headers, rows, "l" + "r" * (len(headers) - 1)) if rows else ""


def _holders(report: StepReport, labels: Mapping[str, str]) -> str:
    rows = [
        [
            labels[device.name],
            holder.kind,
            shorten_middle(holder.operation, _OPERATION_WIDTH),
            format_bytes(holder.bytes),
        ]
        for device in _find_devices_in_use(report)
        for holder in device.holders[:_MAX_HOLDERS]
    ]
    return table(["device", "at its peak", "of", "bytes"], rows, "lllr") if rows else ""


def _find_devices_in_use(report: StepReport) -> list[DeviceReport]:
    return [device for device in report.devices if device.peak_bytes > 0]


def _share(part_secs: float, step_secs: float) -> str:
    return f"{part_secs / step_secs:.1%}" if step_secs > 0 else "-"
