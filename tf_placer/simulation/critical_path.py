"""The critical path of a simulated step: the chain of waits that determines its duration."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from tf_placer.simulation.simulator import StepTrace, Transfers

__all__ = ["PathItem", "Wait", "critical_jobs", "critical_path"]

Wait = Literal["input", "transfer", "device", "channel", "nothing"]


@dataclasses.dataclass(frozen=True)
class PathItem:
    """One operation or transfer on the critical path.

    Attributes:
        kind: "compute": an operation runs. "transfer": a tensor is sent. "control": the signal of
            a control edge is sent.
        operation: name of the operation that runs, or that produced the tensor or signal.
        device: name of the device that the operation runs on, or of the sender.
        destination: name of the receiving device; None for an operation.
        bytes: the size of the transfer; 0 for an operation.
        start_secs: the start, which is the end of the previous item.
        end_secs: the end.
        waited_for: the reason that the item did not start earlier, which is the previous item.
            "input": an input from the same device. "transfer": an input from another device.
            "device": an operation that kept the device busy or, for a transfer, the stream of its
            source or destination. "channel": a transfer that kept the channel or the stream busy,
            or an earlier transfer of the same lane. "nothing": the item starts with the step.
    """

    kind: Literal["compute", "transfer", "control"]
    operation: str
    device: str
    destination: str | None
    bytes: int
    start_secs: float
    end_secs: float
    waited_for: Wait

    @property
    def secs(self) -> float:
        """The duration."""
        return self.end_secs - self.start_secs


def critical_path(trace: StepTrace) -> tuple[PathItem, ...]:
    """Walks back from the operation that ends last to the start of the step.

    Every item starts when the previous one ends, so the durations add up to the step time. If an
    item waited for several others, its predecessor is the one that ended last, or any one of those
    that ended last at the same time. A copy in a stream that the next item of that stream waited
    for ends where that item starts, before its latency.
    """
    items = [_item(trace, job, waited_for) for job, waited_for in critical_jobs(trace)]
    for index, after in enumerate(items[1:]):
        if after.start_secs < items[index].end_secs:
            items[index] = dataclasses.replace(items[index], end_secs=after.start_secs)
    return tuple(items)


def critical_jobs(trace: StepTrace) -> list[tuple[int, Wait]]:
    """Finds the critical path as indices of jobs.

    Returns:
        For each item, in order, the index of its job and its `PathItem.waited_for`. The jobs are
        the operations, followed by the transfers.
    """
    transfers, num_operations = trace.transfers, trace.problem.num_operations
    causes = np.concatenate([trace.causes, transfers.causes]).tolist()
    ready_secs = np.concatenate([trace.ready_secs, transfers.request_secs]).tolist()
    start_secs = np.concatenate([trace.start_secs, transfers.start_secs]).tolist()
    path: list[tuple[int, Wait]] = []
    job = int(np.argmax(trace.end_secs))
    while job >= 0:
        before = causes[job]
        waited_for: Wait
        if before < 0:
            waited_for = "nothing"
        elif start_secs[job] > ready_secs[job]:
            waited_for = "device" if max(job, before) < num_operations else "channel"
        elif job < num_operations:
            waited_for = "input" if before < num_operations else "transfer"
        else:
            waited_for = _find_transfer_wait(
                transfers, job - num_operations, before, num_operations
            )
        path.append((job, waited_for))
        job = before
    return path[::-1]


def _find_transfer_wait(
    transfers: Transfers, transfer: int, before: int, num_operations: int
) -> Wait:
    """Finds the reason that a transfer was not requested before the end of the job `before`."""
    if before < num_operations:
        # A stream may reach the transfer only after operations that the transfer does not need.
        return "input" if before == transfers.producers[transfer] else "device"
    before -= num_operations
    arrived = transfers.destinations[before] == transfers.sources[transfer]
    # A copy that ends later is one that kept a stream busy.
    arrived &= transfers.end_secs[before] <= transfers.request_secs[transfer]
    return "transfer" if arrived else "channel"


def _item(trace: StepTrace, job: int, waited_for: Wait) -> PathItem:
    problem, transfers = trace.problem, trace.transfers
    if job < problem.num_operations:
        return PathItem(
            "compute",
            problem.operation_names[job],
            problem.devices[trace.operation_devices[job]].name,
            None,
            0,
            float(trace.start_secs[job]),
            float(trace.end_secs[job]),
            waited_for,
        )
    transfer = job - problem.num_operations
    return PathItem(
        "control" if transfers.tensors[transfer] < 0 else "transfer",
        problem.operation_names[transfers.producers[transfer]],
        problem.devices[transfers.sources[transfer]].name,
        problem.devices[transfers.destinations[transfer]].name,
        int(transfers.bytes[transfer]),
        float(transfers.start_secs[transfer]),
        float(transfers.end_secs[transfer]),
        waited_for,
    )
