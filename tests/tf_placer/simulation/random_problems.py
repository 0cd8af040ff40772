"""Random problems with all features, to compare simulators on."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["random_placement", "random_problem", "with_barriers"]


def random_problem(
    rng: np.random.Generator,
    max_operations: int = 12,
    *,
    whole_secs: bool | None = None,
    asynchronous_share: float = 0.0,
    in_stream_share: float = 0.0,
) -> PlacementProblem:
    """Makes a problem of up to 5 devices whose operations are not in topological order.

    It has slots, shared channels, tensors without bytes, without consumers and with the same
    consumer twice, several control edges between two operations, operations and links that take no
    time, groups without operations, devices that are illegal for operations or lose time to
    transfers, tensors with fewer local bytes than their size, and little memory.

    Args:
        rng: the source of random numbers.
        max_operations: the maximum number of operations.
        whole_secs: True for small integers as times, so that many events coincide; False for times
            that are almost all different; None to choose at random.
        asynchronous_share: the approximate share of asynchronous devices.
        in_stream_share: the approximate share of these whose copies run in their stream.
    """
    if whole_secs is None:
        whole_secs = bool(rng.integers(2))

    def some_secs(*shape: int) -> np.ndarray:
        secs = rng.integers(0, 4, shape) if whole_secs else rng.exponential(1.0, shape)
        return np.where(rng.random(shape) < 0.2, 0.0, secs)

    def some_bytes(count: int) -> np.ndarray:
        sizes = rng.integers(0, 5, count) if whole_secs else rng.integers(0, 1000, count)
        return np.where(rng.random(count) < 0.2, 0, sizes)

    num_operations = int(rng.integers(1, max_operations + 1))
    num_devices = int(rng.integers(1, 6))
    names = [f"device {d}" for d in range(num_devices)]
    channels = [None, "bus", "network"][: int(rng.integers(1, 4))]
    bandwidths = (1.0, 2.0) if whole_secs else (0.3, 1e3, 1e6)
    links = [
        Link(
            source,
            destination,
            float(some_secs(1)[0]),
            float(rng.choice(bandwidths)),
            channels[rng.integers(len(channels))],
        )
        for source, destination in itertools.permutations(names, 2)
    ]

    # Edges lead to later positions, so there is no cycle.
    places = rng.permutation(num_operations)

    def some_later(place: int, most: int) -> np.ndarray:
        later = places[place + 1 :]
        return rng.choice(later, rng.integers(most + 1)) if len(later) else later

    producers = rng.integers(num_operations, size=rng.integers(2 * num_operations + 1))
    consumers = [some_later(place, 4) for place in producers]
    control_edges = [
        (places[place], after)
        for place in range(num_operations)
        if rng.random() < 0.3
        for after in some_later(place, 3)
    ]

    groups = rng.integers(rng.integers(1, num_operations + 1), size=num_operations)
    legal = rng.random([num_operations, num_devices]) < rng.choice([0.9, 1.0])
    # Make every group legal on some device.
    legal[np.arange(num_operations), rng.integers(num_devices, size=num_operations)[groups]] = True
    temp_bytes, resident_bytes = some_bytes(num_operations), some_bytes(num_operations)
    tensor_bytes = some_bytes(len(producers))
    most = int(temp_bytes.sum() + resident_bytes.sum() + tensor_bytes.sum())
    shares = rng.choice([0.0, 0.25, 1.0], num_devices) * rng.integers(2)
    # Draw no random numbers if none are wanted, so that the problems of older tests stay the same.
    is_asynchronous = np.zeros(num_devices, bool)
    if asynchronous_share > 0:
        is_asynchronous = rng.random(num_devices) < asynchronous_share
    copies_in_stream = np.zeros(num_devices, bool)
    if in_stream_share > 0:
        copies_in_stream = is_asynchronous & (rng.random(num_devices) < in_stream_share)
    return PlacementProblem(
        devices=tuple(
            ProblemDevice(
                name, "GPU", int(rng.integers(most + 1)), int(rng.integers(1, 4)), float(share)
            )
            if not is_asynchronous[d]
            else ProblemDevice(
                name,
                "GPU",
                int(rng.integers(most + 1)),
                is_asynchronous=True,
                copies_in_stream=bool(copies_in_stream[d]),
            )
            for d, (name, share) in enumerate(zip(names, shares, strict=True))
        ),
        links=tuple(links[k] for k in rng.permutation(len(links))),
        operation_names=tuple(f"operation {i}" for i in range(num_operations)),
        compute_secs=np.where(legal, some_secs(num_operations, num_devices), np.inf),
        resident_bytes=resident_bytes,
        temp_bytes=temp_bytes,
        groups=groups,
        tensor_producers=places[producers],
        tensor_bytes=tensor_bytes,
        consumer_start=np.cumsum([0, *map(len, consumers)]),
        consumers=np.concatenate([np.zeros(0, np.int64), *consumers]),
        control_edges=np.array(control_edges, np.int64).reshape(-1, 2),
        local_bytes=np.where(rng.random(len(producers)) < 0.2, tensor_bytes // 2, tensor_bytes),
    )


def with_barriers(rng: np.random.Generator, problem: PlacementProblem) -> PlacementProblem:
    """Adds operations that all wait for the signals of the same others."""
    edges = [problem.control_edges]
    for _ in range(rng.integers(1, 4)):
        first, later = np.split(problem.order, [rng.integers(problem.num_operations + 1)])
        senders = first[rng.random(len(first)) < 0.6]
        waiters = later[rng.random(len(later)) < 0.6]
        edges.append(np.stack(np.meshgrid(senders, waiters), axis=-1).reshape(-1, 2))
    return dataclasses.replace(problem, control_edges=np.concatenate(edges))


def random_placement(rng: np.random.Generator, problem: PlacementProblem) -> np.ndarray:
    """Makes a random legal placement, int32 [num_groups]."""
    secs = np.zeros([problem.num_groups, problem.num_devices])
    np.add.at(secs, problem.groups, problem.compute_secs)
    weights = np.where(np.isfinite(secs), rng.random(secs.shape), -1.0)
    return weights.argmax(axis=1).astype(np.int32)
