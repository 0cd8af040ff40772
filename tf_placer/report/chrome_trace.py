"""Chrome traces of simulated steps, for Perfetto."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tf_placer.report.device_labels import device_labels
from tf_placer.report.operation_kinds import operation_kinds
from tf_placer.report.step_boxes import find_lanes
from tf_placer.simulation.critical_path import critical_jobs
from tf_placer.simulation.memory_profile import holdings, memory_levels
from tf_placer.simulation.simulator import StepTrace

__all__ = ["chrome_trace"]

# Perfetto treats process 0 and thread 0 specially.
_FIRST_PROCESS = 1

_Event = dict[str, Any]


def chrome_trace(steps: Mapping[str, StepTrace]) -> _Event:
    """Builds the trace of simulated steps.

    Every step is a process. Its threads are the critical path, the devices (one thread for each
    operation that a device runs at a time) and the links in use; a counter shows the memory in use
    on each device. Arrows lead from the producer of a tensor through its transfer to its first
    reader. The categories of a span are its type ("compute", "transfer" or "control"), the kind of
    its operation, such as "convolution", "forward" or "backward" (for updates, too), its layer, and
    "critical" on the critical path. Operations that take no time are left out. Times are rounded to
    nanoseconds.

    Args:
        steps: the steps by name, such as "original" and "found".

    Returns:
        A JSON object in the trace event format.

    References:
        Trace Event Format, the JSON object format: complete events ("X"), flow events ("s", "t",
        "f"), counters ("C") and metadata ("M"); "ts" and "dur" are in microseconds.
    """
    events: list[_Event] = []
    for pid, (name, trace) in enumerate(steps.items(), start=_FIRST_PROCESS):
        events += _Process(pid, name, trace).events()
    left_out = {name: int((~_takes_time(trace)).sum()) for name, trace in steps.items()}
    return {
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "otherData": {"operations_without_duration": left_out},
    }


def _takes_time(trace: StepTrace) -> np.ndarray:
    """Finds the operations to show: bool [num_operations]."""
    return trace.end_secs > trace.start_secs


class _Process:
    """The trace events of one step."""

    def __init__(self, pid: int, name: str, trace: StepTrace) -> None:
        self._pid, self._name, self._trace = pid, name, trace
        self._problem = trace.problem
        self._kinds = operation_kinds(trace.problem)
        self._labels = list(device_labels([d.name for d in trace.problem.devices]).values())
        self._path = [job for job, _ in critical_jobs(trace)]
        self._critical = set(self._path)
        self._num_threads = 0
        # Arrows lead from span to span.
        self._operation_spans: dict[int, _Event] = {}
        self._transfer_spans: list[_Event] = []

    def events(self) -> Iterator[_Event]:
        """Yields all events of the process."""
        yield self._metadata("process_name", name=self._name)
        yield self._metadata("process_sort_index", sort_index=self._pid)
        path_tid, named = self._thread("critical path")
        yield from named
        for device in range(self._problem.num_devices):
            yield from self._operations(device)
        yield from self._transfers()
        for job in self._path:
            span = self._span_of(job)
            if span is not None:
                yield {**span, "tid": path_tid}
        yield from self._arrows()
        yield from self._memory()

    def _operations(self, device: int) -> Iterator[_Event]:
        trace = self._trace
        here = np.flatnonzero((trace.operation_devices == device) & _takes_time(trace))
        here = here[np.lexsort((trace.end_secs[here], trace.start_secs[here]))]
        starts, ends = trace.start_secs[here], trace.end_secs[here]
        lanes = find_lanes(trace.operation_devices[here], starts, ends).tolist()
        num_lanes = max(lanes, default=-1) + 1
        tids = []
        for lane in range(num_lanes):
            slot = f" slot {lane}" if num_lanes > 1 else ""
            tid, named = self._thread(f"{self._labels[device]}{slot}")
            tids.append(tid)
            yield from named
        for operation, lane in zip(here.tolist(), lanes, strict=True):
            waited_secs = float(trace.start_secs[operation] - trace.ready_secs[operation])
            span = self._span(
                operation,
                operation,
                "compute",
                tids[lane],
                (float(trace.start_secs[operation]), float(trace.end_secs[operation])),
                group=int(self._problem.groups[operation]),
                waited_us=_us(waited_secs),
            )
            self._operation_spans[operation] = span
            yield span

    def _transfers(self) -> Iterator[_Event]:
        problem, transfers = self._problem, self._trace.transfers
        pairs = list(zip(transfers.sources.tolist(), transfers.destinations.tolist(), strict=True))
        index = {device.name: number for number, device in enumerate(problem.devices)}
        used, tids = set(pairs), dict[tuple[int, int], int]()
        for link in problem.links:
            pair = index[link.source], index[link.destination]
            if pair in used:
                name = f"{self._labels[pair[0]]} -> {self._labels[pair[1]]}"
                tids[pair], named = self._thread(name)
                yield from named
        for transfer, pair in enumerate(pairs):
            start, end = float(transfers.start_secs[transfer]), float(transfers.end_secs[transfer])
            waited_secs = start - float(transfers.request_secs[transfer])
            span = self._span(
                problem.num_operations + transfer,
                int(transfers.producers[transfer]),
                "control" if transfers.tensors[transfer] < 0 else "transfer",
                tids[pair],
                (start, end),
                bytes=int(transfers.bytes[transfer]),
                waited_us=_us(waited_secs),
            )
            self._transfer_spans.append(span)
            yield span

    def _arrows(self) -> Iterator[_Event]:
        """Yields arrows from the producer of a tensor through its transfer to its first reader."""
        producers = self._trace.transfers.producers.tolist()
        readers = self._first_readers()
        for transfer, span in enumerate(self._transfer_spans):
            sender = self._operation_spans.get(producers[transfer])
            receiver = self._operation_spans.get(readers[transfer])
            stations = [station for station in (sender, span, receiver) if station is not None]
            for number, station in enumerate(stations):
                if len(stations) < 2:
                    break
                is_last = number == len(stations) - 1
                yield {
                    "ph": "s" if number == 0 else "f" if is_last else "t",
                    "id": self._pid * 10**9 + transfer,
                    "name": "tensor",
                    "cat": "tensor",
                    "pid": self._pid,
                    "tid": station["tid"],
                    # Perfetto attaches an arrow to the span at this time.
                    "ts": station["ts"],
                    "bp": "e",
                }

    def _first_readers(self) -> list[int]:
        """Finds the first operation that reads each transferred tensor; -1 if none is shown."""
        problem, trace, transfers = self._problem, self._trace, self._trace.transfers
        after: dict[int, list[int]] = {}
        for before, following in problem.control_edges.tolist():
            after.setdefault(before, []).append(following)
        shown = _takes_time(trace)
        found = []
        for tensor, producer, destination in zip(
            transfers.tensors.tolist(),
            transfers.producers.tolist(),
            transfers.destinations.tolist(),
            strict=True,
        ):
            if tensor < 0:
                readers = np.array(after.get(producer, []), np.int64)
            else:
                start, end = problem.consumer_start[tensor : tensor + 2]
                readers = problem.consumers[start:end]
            there = readers[(trace.operation_devices[readers] == destination) & shown[readers]]
            first = there[np.argmin(trace.start_secs[there])] if there.size else -1
            found.append(int(first))
        return found

    def _memory(self) -> Iterator[_Event]:
        held, trace = holdings(self._trace), self._trace
        for device, label in enumerate(self._labels):
            levels = memory_levels(trace, device, held.on(device))
            for secs, level in zip(levels.secs.tolist(), levels.levels.tolist(), strict=True):
                yield {
                    "ph": "C",
                    "name": f"memory of {label}",
                    "pid": self._pid,
                    "ts": _us(secs),
                    "args": {"bytes": level},
                }

    def _span_of(self, job: int) -> _Event | None:
        """Finds the span of a job, an operation or a transfer; None if it is left out."""
        if job >= self._problem.num_operations:
            return self._transfer_spans[job - self._problem.num_operations]
        return self._operation_spans.get(job)

    def _span(
        self,
        job: int,
        operation: int,
        kind: str,
        tid: int,
        start_and_end_secs: tuple[float, float],
        **args: object,
    ) -> _Event:
        name, layers = self._problem.operation_names[operation], self._problem.layers
        categories = [kind, *([self._kinds.kinds[operation]] if kind == "compute" else [])]
        categories.append("backward" if self._kinds.backward[operation] else "forward")
        if layers is not None:
            categories.append(f"layer {layers[operation]}")
        if job in self._critical:
            categories.append("critical")
        # Round both times and not the duration, so that the next span never starts before the end.
        start_ns, end_ns = (round(secs * 1e9) for secs in start_and_end_secs)
        return {
            "ph": "X",
            "name": name,
            "cat": ",".join(categories),
            "pid": self._pid,
            "tid": tid,
            "ts": start_ns / 1e3,
            "dur": (end_ns - start_ns) / 1e3,
            "args": args,
        }

    def _thread(self, name: str) -> tuple[int, list[_Event]]:
        """Adds a thread; Perfetto shows threads in the order of their numbers."""
        self._num_threads += 1
        tid = self._num_threads
        return tid, [
            {**self._metadata("thread_name", name=name), "tid": tid},
            {**self._metadata("thread_sort_index", sort_index=tid), "tid": tid},
        ]

    def _metadata(self, kind: str, **args: object) -> _Event:
        return {"ph": "M", "name": kind, "pid": self._pid, "args": args}


def _us(secs: float) -> float:
    return round(secs * 1e9) / 1e3
