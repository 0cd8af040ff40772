"""What a simulated step spends its time and memory on."""

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
    """Something that a device holds when it holds most.

    Attributes:
        kind: "output": a tensor where it was made. "copy": a tensor that was received.
            "temporary": what an operation holds while it runs.
        operation: name of the operation that made the tensor, or that runs.
        bytes: its size.
    """

    kind: str
    operation: str
    bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceReport:
    """What one device does in the step.

    Attributes:
        name: the device.
        slots: how many operations it runs at a time.
        operations: how many operations it runs in all.
        busy_secs: seconds in which at least one operation runs.
        idle_secs: the other seconds of the step.
        compute_secs: the durations of its operations, added up; more than `busy_secs` when several
            run at a time.
        copy_secs: seconds in which something is sent from it or to it.
        memory_bytes: what it can hold.
        peak_bytes: the most that it holds, which is the sum of the next five.
        resident_bytes: what it holds for the whole step.
        output_bytes: tensors made there that it holds at the peak.
        copy_bytes: tensors received there that it holds at the peak.
        temporary_bytes: what the operations that run at the peak hold beside those.
        unused_bytes: what an allocator needs beside those, because blocks do not fit; 0 on devices
            that are not asynchronous, or far from full.
        peak_secs: when it holds the most for the first time; of an asynchronous device, when its
            stream comes to what it is handed then.
        holders: the largest of what it holds at the peak beside what is resident, at most ten, the
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
    """What one link carries in the step.

    Attributes:
        source: name of the device that sends.
        destination: name of the device that receives.
        channel: what it shares with other links; None for a channel of its own.
        transfers: how many tensors and signals it carries.
        bytes: their sizes, added up.
        busy_secs: seconds in which it carries one.
        waiting_secs: the seconds that they wait for the channel, added up.
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
    """A simulated step, explained.

    Attributes:
        step_secs: how long it takes.
        devices: one for each device of the problem.
        links: one for each link that carries something, in the order of the problem.
        critical_path: from the start of the step to its end without a gap, what each waited for.
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
        """Whether no device holds more than it can."""
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
        ValueError: something in the trace starts without a reason.
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
    busy_secs = _covered_secs(trace.start_secs[here], trace.end_secs[here])
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
        copy_secs=_covered_secs(transfers.start_secs[moves], transfers.end_secs[moves]),
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


def _covered_secs(start_secs: np.ndarray, end_secs: np.ndarray) -> float:
    """Seconds in which at least one of these intervals runs."""
    order = np.argsort(start_secs, kind="stable")
    start_secs, end_secs = start_secs[order], end_secs[order]
    # What comes before the end of an earlier interval is covered already.
    known_until = np.concatenate([[0.0], np.maximum.accumulate(end_secs)])[:-1]
    return float(np.maximum(end_secs - np.maximum(start_secs, known_until), 0.0).sum())
