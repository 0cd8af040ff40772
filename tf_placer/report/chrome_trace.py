"""A simulated step as a Chrome trace, which Perfetto shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.simulation.simulator import StepTrace

__all__ = ["chrome_trace"]

# Perfetto has its own idea of process 0 and thread 0.
_FIRST = 1


def chrome_trace(trace: StepTrace) -> dict[str, Any]:
    """Shows what runs where and when.

    Every device is a process with one thread for each operation that it runs at a time, and with a
    counter of the memory that it holds. A last process has one thread for each link that carries
    something. Times are rounded to nanoseconds.

    Returns:
        A JSON object in the trace event format.

    References:
        Trace Event Format, the JSON object format: complete events ("X"), counters ("C") and
        metadata ("M"); "ts" and "dur" are in microseconds.
    """
    events = []
    for device in range(trace.problem.num_devices):
        events += _names(_FIRST + device, trace.problem.devices[device].name)
        events += _operations(trace, device)
    events += _names(_FIRST + trace.problem.num_devices, "links")
    events += _transfers(trace)
    events += _memory(trace)
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _operations(trace: StepTrace, device: int) -> list[dict[str, Any]]:
    problem, pid = trace.problem, _FIRST + device
    here = np.flatnonzero(trace.operation_devices == device)
    # What takes no time comes before what starts at the same time and keeps the slot.
    here = here[np.lexsort((trace.end_secs[here], trace.start_secs[here]))]
    lane_ends: list[float] = []
    events = []
    for operation in here.tolist():
        start, end = float(trace.start_secs[operation]), float(trace.end_secs[operation])
        lane = next((lane for lane, until in enumerate(lane_ends) if until <= start), None)
        if lane is None:
            lane = len(lane_ends)
            lane_ends.append(end)
        lane_ends[lane] = end
        waited_secs = start - float(trace.ready_secs[operation])
        events.append(
            _span(problem.operation_names[operation], pid, _FIRST + lane, start, end)
            | {"args": {"group": int(problem.groups[operation]), "waited_us": _us(waited_secs)}}
        )
    slots = [_thread_name(pid, _FIRST + lane, f"slot {lane}") for lane in range(len(lane_ends))]
    return slots + events


def _transfers(trace: StepTrace) -> list[dict[str, Any]]:
    problem, transfers = trace.problem, trace.transfers
    pid = _FIRST + problem.num_devices
    pairs = list(zip(transfers.sources.tolist(), transfers.destinations.tolist(), strict=True))
    used = set(pairs)
    index = {device.name: number for number, device in enumerate(problem.devices)}
    tids: dict[tuple[int, int], int] = {}
    events = []
    for link in problem.links:
        pair = index[link.source], index[link.destination]
        if pair in used:
            tids[pair] = _FIRST + len(tids)
            channel = "" if link.channel is None else f" ({link.channel})"
            name = f"{link.source} -> {link.destination}{channel}"
            events.append(_thread_name(pid, tids[pair], name))
    for transfer, pair in enumerate(pairs):
        name = problem.operation_names[transfers.producers[transfer]]
        start, end = float(transfers.start_secs[transfer]), float(transfers.end_secs[transfer])
        waited_secs = start - float(transfers.request_secs[transfer])
        events.append(
            _span(name, pid, tids[pair], start, end)
            | {"args": {"bytes": int(transfers.bytes[transfer]), "waited_us": _us(waited_secs)}}
        )
    return events


def _memory(trace: StepTrace) -> list[dict[str, Any]]:
    held = holdings(trace)
    events = []
    for device in range(trace.problem.num_devices):
        resident_bytes = int(trace.problem.resident_bytes[trace.operation_devices == device].sum())
        levels = memory_levels(held.on(device), resident_bytes)
        events += [
            {
                "ph": "C",
                "name": "memory",
                "pid": _FIRST + device,
                "ts": _us(secs),
                "args": {"bytes": level},
            }
            for secs, level in zip(levels.secs.tolist(), levels.levels.tolist(), strict=True)
        ]
    return events


def _names(pid: int, name: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}},
    ]


def _thread_name(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, pid: int, tid: int, start_secs: float, end_secs: float) -> dict[str, Any]:
    # The difference of rounded times, so that what follows never starts before the end.
    start_ns, end_ns = round(start_secs * 1e9), round(end_secs * 1e9)
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start_ns / 1e3,
        "dur": (end_ns - start_ns) / 1e3,
    }


def _us(secs: float) -> float:
    return round(secs * 1e9) / 1e3
