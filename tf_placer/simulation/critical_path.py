"""Why a simulated step took as long as it did: the chain of waits that ends with it."""

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
        operation: name of the operation that runs, or that made what is sent.
        device: name of the device that the operation runs on, or that sends.
        destination: name of the device that receives; None for an operation.
        bytes: what is sent; 0 for an operation.
        start_secs: when it starts, which is when the item before it ends.
        end_secs: when it ends.
        waited_for: why it did not start earlier, which is the item before it. "input": something
            from the same device. "transfer": something from another device. "device": an operation
            that kept the device busy, or, of a transfer, the stream of one of its ends. "channel":
            a transfer that kept the channel busy, or came before it in its lane. "nothing": it
            starts with the step.
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
        """How long it takes."""
        return self.end_secs - self.start_secs


def critical_path(trace: StepTrace) -> tuple[PathItem, ...]:
    """Walks back from the operation that ends last to the start of the step.

    Every item starts when the one before it ends, so their durations add up to the step time. Of
    several things that something waited for, the one that came last is named; of those that came
    at the same time, one of them.
    """
    return tuple(_item(trace, job, waited_for) for job, waited_for in critical_jobs(trace))


def critical_jobs(trace: StepTrace) -> list[tuple[int, Wait]]:
    """Finds the critical path by numbers.

    Returns:
        For each item, in order, what it is: the index of an operation, or the number of operations
        plus that of a transfer; and why it did not start earlier, see `PathItem`.
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
            waited_for = "device" if job < num_operations else "channel"
        elif job < num_operations:
            waited_for = "input" if before < num_operations else "transfer"
        else:
            waited_for = _wait_of_transfer(transfers, job - num_operations, before, num_operations)
        path.append((job, waited_for))
        job = before
    return path[::-1]


def _wait_of_transfer(transfers: Transfers, transfer: int, before: int, first: int) -> Wait:
    """Says why a transfer was not requested earlier, given the job that ended then."""
    if before < first:
        # Streams also come to a transfer behind operations that it has nothing to do with.
        return "input" if before == transfers.producers[transfer] else "device"
    arrived = transfers.destinations[before - first] == transfers.sources[transfer]
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
