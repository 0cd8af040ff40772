"""Small problems, and traces of their steps by the reference simulator."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from tests.tf_placer.simulation.random_problems import random_placement, random_problem
from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.simulation.simulator import Simulator, StepTrace

__all__ = ["make_problem", "make_trace", "random_traces"]


def make_problem(
    compute_secs: Sequence[Sequence[float]],
    *,
    tensors: Sequence[tuple[int, int, Sequence[int]]] = (),
    control_edges: Sequence[tuple[int, int]] = (),
    names: Sequence[str] | None = None,
    resident_bytes: Sequence[int] | None = None,
    temp_bytes: Sequence[int] | None = None,
    groups: Sequence[int] | None = None,
    slots: Sequence[int] | None = None,
    memory_bytes: Sequence[int] | None = None,
    latency_secs: float = 0.0,
    bandwidth_bytes_per_sec: float = 1.0,
    channel: str | None = None,
) -> PlacementProblem:
    """Makes a problem whose devices are named D0, D1, … and whose links are all equal.

    Args:
        compute_secs: a row for each operation.
        tensors: (producer, bytes, consumers) of each.
        control_edges: (before, after) of each.
        names: of the operations; by default op0, op1, …
        resident_bytes: of the operations; by default 0.
        temp_bytes: of the operations; by default 0.
        groups: of the operations; by default a group for each.
        slots: of the devices; by default 1.
        memory_bytes: of the devices; by default 1000.
        latency_secs: of the links.
        bandwidth_bytes_per_sec: of the links.
        channel: of the links.
    """
    num_operations, num_devices = np.shape(compute_secs)
    zeros = [0] * num_operations
    devices = [
        ProblemDevice(
            f"D{d}", "GPU", memory_bytes[d] if memory_bytes else 1000, slots[d] if slots else 1
        )
        for d in range(num_devices)
    ]
    return PlacementProblem(
        devices=tuple(devices),
        links=tuple(
            Link(a.name, b.name, latency_secs, bandwidth_bytes_per_sec, channel)
            for a, b in itertools.permutations(devices, 2)
        ),
        operation_names=tuple(names or (f"op{i}" for i in range(num_operations))),
        compute_secs=np.array(compute_secs, np.float64),
        resident_bytes=np.array(resident_bytes or zeros),
        temp_bytes=np.array(temp_bytes or zeros),
        groups=np.array(groups if groups is not None else range(num_operations)),
        tensor_producers=np.array([producer for producer, _, _ in tensors], np.int64),
        tensor_bytes=np.array([size for _, size, _ in tensors], np.int64),
        consumer_start=np.cumsum([0, *(len(consumers) for _, _, consumers in tensors)]),
        consumers=np.array([c for _, _, consumers in tensors for c in consumers], np.int64),
        control_edges=np.array(control_edges, np.int64).reshape(-1, 2),
    )


def make_trace(problem: PlacementProblem, placement: Sequence[int] | np.ndarray) -> StepTrace:
    """Traces a step under a legal placement."""
    return Simulator(problem, threads=1).trace(np.array(placement, np.int32))


def random_traces(
    seed: int, count: int, *, asynchronous_share: float = 0.0, in_stream_share: float = 0.0
) -> Iterator[StepTrace]:
    """Yields traces of random placements of random problems."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        problem = random_problem(
            rng,
            max_operations=14,
            asynchronous_share=asynchronous_share,
            in_stream_share=in_stream_share,
        )
        yield make_trace(problem, random_placement(rng, problem))
