"""Why a simulated step took as long as it did: the chain of waits that ends with it."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.simulation.simulator import StepTrace

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
            that kept the device busy. "channel": a transfer that kept the channel busy. "nothing":
            it starts with the step.
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

    Raises:
        ValueError: something in the trace starts without a reason.
    """
    return tuple(_item(trace, job, waited_for) for job, waited_for in critical_jobs(trace))


def critical_jobs(trace: StepTrace) -> list[tuple[int, Wait]]:
    """Finds the critical path by numbers.

    Returns:
        For each item, in order, what it is: the index of an operation, or the number of operations
        plus that of a transfer; and why it did not start earlier, see `PathItem`.

    Raises:
        ValueError: something in the trace starts without a reason.
    """
    problem, transfers = trace.problem, trace.transfers
    num_operations = problem.num_operations
    # Operations and transfers are numbered as one. Each waits for an input, then for its place.
    channels = _channels(problem)[transfers.sources, transfers.destinations]
    places = np.concatenate([trace.operation_devices, problem.num_devices + channels]).tolist()
    ready_secs = np.concatenate([trace.ready_secs, transfers.request_secs]).tolist()
    start_secs = np.concatenate([trace.start_secs, transfers.start_secs]).tolist()
    end_secs = np.concatenate([trace.end_secs, transfers.end_secs]).tolist()
    last_inputs = np.concatenate([_last_inputs(trace), transfers.producers]).tolist()
    # Times are compared exactly: the simulator copies them. What takes no time keeps nothing busy.
    freed = {
        (places[job], end_secs[job]): job
        for job in reversed(range(len(places)))
        if start_secs[job] < end_secs[job]
    }

    path: list[tuple[int, Wait]] = []
    job = int(np.argmax(trace.end_secs))
    while job >= 0:
        waited_for: Wait
        if start_secs[job] > ready_secs[job]:
            before = freed.get((places[job], start_secs[job]), -1)
            waited_for = "device" if job < num_operations else "channel"
        else:
            before = last_inputs[job]
            waited_for = "input" if before < num_operations else "transfer"
        if before < 0:
            waited_for = "nothing"
        path.append((job, waited_for))
        if before < 0 and start_secs[job] > 0:
            item = _item(trace, job, waited_for)
            raise ValueError(
                f"{item.kind} of {item.operation!r} starts after {start_secs[job]} s, but nothing "
                "ends then that it could have waited for"
            )
        job = before
    return path[::-1]


def _channels(problem: PlacementProblem) -> np.ndarray:
    """Finds which links share a channel.

    Returns:
        int64 [num_devices, num_devices], from source to destination: the position of the first
        link of the same channel in `problem.links`. -1 on the diagonal.
    """
    index = {device.name: number for number, device in enumerate(problem.devices)}
    first_of_channel: dict[str, int] = {}
    numbers = np.full([problem.num_devices, problem.num_devices], -1, np.int64)
    for number, link in enumerate(problem.links):
        if link.channel is not None:
            number = first_of_channel.setdefault(link.channel, number)
        numbers[index[link.source], index[link.destination]] = number
    return numbers


def _last_inputs(trace: StepTrace) -> np.ndarray:
    """Finds what brought each operation the input that made it ready.

    Returns:
        int64 [num_operations]: an operation, or num_operations + the index of a transfer; -1 for an
        operation without inputs.
    """
    problem, transfers = trace.problem, trace.transfers
    before, after = problem.edges.T
    # What is sent is a tensor, or the signal of an operation, numbered behind the tensors.
    read = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    sent = np.concatenate([read, problem.num_tensors + problem.control_edges[:, 0]])
    transfer_of = np.full(
        [problem.num_tensors + problem.num_operations, problem.num_devices], -1, np.int64
    )
    sent_by_transfer = np.where(
        transfers.tensors >= 0, transfers.tensors, problem.num_tensors + transfers.producers
    )
    transfer_of[sent_by_transfer, transfers.destinations] = np.arange(len(transfers.tensors))

    devices = trace.operation_devices
    is_local = devices[before] == devices[after]
    bringers = np.where(
        is_local, before, problem.num_operations + transfer_of[sent, devices[after]]
    )
    end_secs = np.concatenate([trace.end_secs, transfers.end_secs])
    is_last = end_secs[bringers] == trace.ready_secs[after]
    last_inputs = np.full(problem.num_operations, -1, np.int64)
    last_inputs[after[is_last]] = bringers[is_last]
    return last_inputs


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
