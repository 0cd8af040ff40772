"""A report on the use of time and memory in a simulated step."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tf_placer.simulation.critical_path import PathItem, critical_path
from tf_placer.simulation.memory_profile import (
    COPY,
    OUTPUT,
    TEMPORARY,
    Holdings,
    holdings,
    memory_levels,
)
from tf_placer.simulation.simulator import StepTrace

__all__ = ["DeviceReport", "Holder", "LinkReport", "StepReport", "step_report"]

_MAX_HOLDERS = 10
_HOLDER_KINDS = {OUTPUT: "output", COPY: "copy", TEMPORARY: "temporary"}


@dataclasses.dataclass(frozen=True)
class Holder:
    """An allocation on a device at its memory peak.

    Attributes:
        kind: "output": a tensor on the device that made it. "copy": a tensor on a device that
            received it. "temporary": memory of an operation while it runs.
        operation: name of the operation that made the tensor, or that runs.
        bytes: the size.
    """

    kind: str
    operation: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceReport:
    """The use of one device in the step.

    Attributes:
        name: the name of the device.
        slots: the number of operations that run at a time.
        operations: the number of operations that run in all.
        busy_secs: seconds in which at least one operation runs.
        idle_secs: the other seconds of the step.
        compute_secs: the sum of the durations of its operations; more than `busy_secs` if several
            run at a time.
        copy_secs: seconds in which at least one transfer from or to the device runs.
        memory_bytes: the memory of the device.
        peak_bytes: the peak memory in use, which is the sum of the next five.
        resident_bytes: the memory held for the whole step.
        output_bytes: the size at the peak of tensors made on the device.
        copy_bytes: the size at the peak of tensors received from other devices.
        temporary_bytes: the temporary memory at the peak of running operations.
        unused_bytes: the memory that the allocator loses at the peak to fragmentation; 0 on devices
            that are not asynchronous, or far from full.
        peak_secs: the time of the first peak. For an asynchronous device, the time when its stream
            reaches the operation that it is handed at the peak.
        holders: the largest allocations at the peak except resident memory, at most ten, the
            largest first.
    """

    name: str
    slots: int
    operations: int
    busy_secs: float
    idle_secs: float
    compute_secs: float
    copy_secs: float
    memory_bytes: int
    peak_bytes: int
    resident_bytes: int
    output_bytes: int
    copy_bytes: int
    temporary_bytes: int
    unused_bytes: int
    peak_secs: float
    holders: tuple[Holder, ...]


@dataclasses.dataclass(frozen=True)
class LinkReport:
    """The use of one link in the step.

    Attributes:
        source: name of the sending device.
        destination: name of the receiving device.
        channel: name of the channel that it shares with other links; None for a channel of its own.
        transfers: the number of tensors and signals.
        bytes: the sum of their sizes.
        busy_secs: the sum of their durations.
        waiting_secs: the sum of the times that they wait for the channel.
    """

    source: str
    destination: str
    channel: str | None
    transfers: int
    bytes: int
    busy_secs: float
    waiting_secs: float


@dataclasses.dataclass(frozen=True)
class StepReport:
    """An explanation of a simulated step.

    Attributes:
        step_secs: the step time.
        devices: one report for each device of the problem.
        links: one report for each link that carries anything, in the order of the problem.
        critical_path: the operations and transfers that determine the step time, without a gap from
            the start of the step to its end.
    """

    step_secs: float
    devices: tuple[DeviceReport, ...]
    links: tuple[LinkReport, ...]
    critical_path: tuple[PathItem, ...]

    @property
    def path_compute_secs(self) -> float:
        """Seconds of the critical path in which an operation runs."""
        return sum(item.secs for item in self.critical_path if item.kind == "compute")

    @property
    def path_transfer_secs(self) -> float:
        """Seconds of the critical path in which a tensor or a signal is sent."""
        return sum(item.secs for item in self.critical_path if item.kind != "compute")

    @property
    def fits(self) -> bool:
        """True if no device holds more than its memory."""
        return all(device.peak_bytes <= device.memory_bytes for device in self.devices)

    def to_json(self) -> dict[str, Any]:
        """Makes the JSON form."""
        return {
            "step_secs": self.step_secs,
            "fits": self.fits,
            "devices": [dataclasses.asdict(device) for device in self.devices],
            "links": [dataclasses.asdict(link) for link in self.links],
            "critical_path": {
                "compute_secs": self.path_compute_secs,
                "transfer_secs": self.path_transfer_secs,
                "items": [dataclasses.asdict(item) for item in self.critical_path],
            },
        }


def step_report(trace: StepTrace) -> StepReport:
    """Explains a simulated step.

    Raises:
        ValueError: an operation or transfer in the trace starts without a reason.
    """
    held = holdings(trace)
    return StepReport(
        step_secs=float(trace.step_secs),
        devices=tuple(
            _device(trace, device, held.on(device)) for device in range(trace.problem.num_devices)
        ),
        links=tuple(_links(trace)),
        critical_path=critical_path(trace),
    )


def _device(trace: StepTrace, device: int, held: Holdings) -> DeviceReport:
    problem, transfers = trace.problem, trace.transfers
    here = trace.operation_devices == device
    moves = (transfers.sources == device) | (transfers.destinations == device)
    busy_secs = _measure_union(trace.start_secs[here], trace.end_secs[here])
    resident_bytes = int(problem.resident_bytes[here].sum())
    levels = memory_levels(trace, device, held)
    at_peak = held.at(float(levels.instants[levels.peak]))
    largest = np.argsort(-at_peak.sizes, kind="stable")[:_MAX_HOLDERS]
    kind_bytes = [int(at_peak.sizes[at_peak.kinds == kind].sum()) for kind in _HOLDER_KINDS]
    return DeviceReport(
        name=problem.devices[device].name,
        slots=problem.devices[device].slots,
        operations=int(here.sum()),
        busy_secs=busy_secs,
        idle_secs=max(float(trace.step_secs) - busy_secs, 0.0),
        compute_secs=float((trace.end_secs[here] - trace.start_secs[here]).sum()),
        copy_secs=_measure_union(transfers.start_secs[moves], transfers.end_secs[moves]),
        memory_bytes=problem.devices[device].memory_bytes,
        peak_bytes=int(trace.peak_bytes[device]),
        resident_bytes=resident_bytes,
        output_bytes=kind_bytes[0],
        copy_bytes=kind_bytes[1],
        temporary_bytes=kind_bytes[2],
        unused_bytes=int(trace.peak_bytes[device] - levels.levels[levels.peak]),
        peak_secs=float(levels.secs[levels.peak]),
        holders=tuple(
            Holder(
                _HOLDER_KINDS[int(at_peak.kinds[i])],
                problem.operation_names[at_peak.operations[i]],
                int(at_peak.sizes[i]),
            )
            for i in largest
        ),
    )


def _links(trace: StepTrace) -> list[LinkReport]:
    problem, transfers = trace.problem, trace.transfers
    pairs = transfers.sources * problem.num_devices + transfers.destinations
    num_pairs = problem.num_devices**2
    counts = np.bincount(pairs, minlength=num_pairs)
    sizes = np.zeros(num_pairs, np.int64)
    np.add.at(sizes, pairs, transfers.bytes)
    busy_secs = np.bincount(pairs, transfers.end_secs - transfers.start_secs, num_pairs)
    waiting_secs = np.bincount(pairs, transfers.start_secs - transfers.request_secs, num_pairs)
    index = {device.name: number for number, device in enumerate(problem.devices)}
    reports = []
    for link in problem.links:
        pair = index[link.source] * problem.num_devices + index[link.destination]
        if counts[pair]:
            reports.append(
                LinkReport(
                    link.source,
                    link.destination,
                    link.channel,
                    int(counts[pair]),
                    int(sizes[pair]),
                    float(busy_secs[pair]),
                    float(waiting_secs[pair]),
                )
            )
    return reports


def _measure_union(start_secs: np.ndarray, end_secs: np.ndarray) -> float:
    """Computes the length of the union of intervals, in seconds."""
    order = np.argsort(start_secs, kind="stable")
    start_secs, end_secs = start_secs[order], end_secs[order]
    # Count only the part of an interval after the end of all earlier ones.
    counted_until = np.concatenate([[0.0], np.maximum.accumulate(end_secs)])[:-1]
    return float(np.maximum(end_secs - np.maximum(start_secs, counted_until), 0.0).sum())
