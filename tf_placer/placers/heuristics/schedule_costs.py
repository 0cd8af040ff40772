"""The costs of a placement problem, in the form that list schedulers read."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["ScheduleCosts", "average_link", "average_secs", "read_schedule_costs"]


@dataclasses.dataclass(frozen=True, eq=False)
class ScheduleCosts:
    """The costs of operations and of transfers between them.

    Lists are faster than arrays here, because a list scheduler reads single operations.

    Attributes:
        order: the operations in topological order.
        inputs: for each operation the pairs (predecessor, bytes from it); no predecessor twice.
        followers: for each operation its successors; none twice.
        secs: for each operation its seconds on each device; infinite where it may not go.
        groups: the group of each operation.
        latency_secs: for each device the latencies of the links to each device.
        secs_per_byte: for each device the seconds per byte of the links to each device.
        slots: for each device the number of operations that run at a time.
    """

    order: list[int]
    inputs: list[list[tuple[int, int]]]
    followers: list[list[int]]
    secs: list[list[float]]
    groups: list[int]
    latency_secs: list[list[float]]
    secs_per_byte: list[list[float]]
    slots: list[int]

    def arrival_secs(
        self, operation: int, device: int, devices: list[int], ends: list[float]
    ) -> float:
        """Computes the time when all inputs of an operation are on a device.

        Transfers do not wait for each other, as usual in list scheduling.

        Args:
            operation: the operation.
            device: its device.
            devices: the device of each operation; those of its predecessors are read.
            ends: the end of each operation; those of its predecessors are read.
        """
        arrival = 0.0
        for before, size in self.inputs[operation]:
            source = devices[before]
            there = ends[before]
            if source != device:
                there += self.latency_secs[source][device]
                there += size * self.secs_per_byte[source][device]
            arrival = max(arrival, there)
        return arrival


def read_schedule_costs(
    problem: PlacementProblem, *, communication_weight: float = 1.0
) -> ScheduleCosts:
    """Reads the costs of a problem.

    Args:
        problem: the placement problem.
        communication_weight: a factor on the seconds of all transfers. List schedulers do not
            model queues in front of a link; a factor above 1 stands for the waiting there.
    """
    count, num_devices = problem.num_operations, problem.num_devices
    tensors = np.repeat(np.arange(problem.num_tensors), np.diff(problem.consumer_start))
    reads = np.unique(tensors * count + problem.consumers)  # A tensor is sent once.
    tensors, consumers = reads // count, reads % count
    pairs = np.concatenate(
        [
            problem.tensor_producers[tensors] * np.int64(count) + consumers,
            problem.control_edges[:, 0] * np.int64(count) + problem.control_edges[:, 1],
        ]
    )
    sizes = np.concatenate([problem.tensor_bytes[tensors], np.zeros(len(problem.control_edges))])
    edges, edge_of = np.unique(pairs, return_inverse=True)
    bytes_sent = np.zeros(len(edges), np.int64)
    np.add.at(bytes_sent, edge_of, sizes.astype(np.int64))
    inputs: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    followers: list[list[int]] = [[] for _ in range(count)]
    for edge, size in zip(edges.tolist(), bytes_sent.tolist(), strict=True):
        before, after = divmod(edge, count)
        inputs[after].append((before, size))
        followers[before].append(after)
    latency_secs = np.zeros([num_devices, num_devices])
    secs_per_byte = np.zeros([num_devices, num_devices])
    numbers = {device.name: number for number, device in enumerate(problem.devices)}
    for link in problem.links:
        ends = numbers[link.source], numbers[link.destination]
        latency_secs[ends] = communication_weight * link.latency_secs
        secs_per_byte[ends] = communication_weight / link.bandwidth_bytes_per_sec
    return ScheduleCosts(
        order=problem.order.tolist(),
        inputs=inputs,
        followers=followers,
        secs=problem.compute_secs.tolist(),
        groups=problem.groups.tolist(),
        latency_secs=latency_secs.tolist(),
        secs_per_byte=secs_per_byte.tolist(),
        slots=[device.slots for device in problem.devices],
    )


def average_secs(costs: ScheduleCosts, allowed: np.ndarray) -> list[float]:
    """Averages the seconds of each operation over the allowed devices of its group.

    Args:
        costs: the costs of the operations.
        allowed: bool [num_groups, num_devices], true where a group may go.
    """
    may_go = allowed[costs.groups]
    sums = np.where(may_go, np.array(costs.secs).reshape(may_go.shape), 0.0).sum(axis=1)
    means: list[float] = (sums / may_go.sum(axis=1)).tolist()
    return means


def average_link(costs: ScheduleCosts, allowed: np.ndarray) -> tuple[float, float]:
    """Averages the links between devices that groups may go to.

    Args:
        costs: the costs of the links.
        allowed: bool [num_groups, num_devices], true where a group may go.

    Returns:
        (latency in seconds, seconds per byte); zeros if there is only one such device.
    """
    devices = np.flatnonzero(allowed.any(axis=0)).tolist()
    pairs = list(itertools.permutations(devices, 2))
    latency_secs = sum(costs.latency_secs[source][end] for source, end in pairs)
    secs_per_byte = sum(costs.secs_per_byte[source][end] for source, end in pairs)
    return latency_secs / max(len(pairs), 1), secs_per_byte / max(len(pairs), 1)
