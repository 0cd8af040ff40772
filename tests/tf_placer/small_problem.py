"""A problem whose four placements can be worked out by hand.

A source on the CPU alone makes 10 bytes, which two operations read that are faster on the GPU:

    assignment  step    peak bytes       why
    [0, 0, 0]   9.0 s   40 (30 + 10), 0  1 + 4 + 4, one after the other
    [0, 0, 1]   5.0 s   20, 30           1 + 4 on the CPU; the GPU is done at 1 + 1.5 + 1
    [0, 1, 0]   5.0 s   40, 10           the same the other way round
    [0, 1, 1]   4.5 s   20, 30           1 + 1.5 to send + 1 + 1

All four are `STEPS` and `PEAKS`. Two operations have to follow the source, one after the other or
one of them behind a transfer, so no step is shorter than `LOWER_BOUND_SECS`.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

BEST = (0, 1, 1)
ILLEGAL = (1, 1, 1)
STEPS = {(0, 0, 0): 9.0, (0, 0, 1): 5.0, (0, 1, 0): 5.0, BEST: 4.5}
PEAKS = {(0, 0, 0): (40, 0), (0, 0, 1): (20, 30), (0, 1, 0): (40, 10), BEST: (20, 30)}
LOWER_BOUND_SECS = 3.0


def small_problem(cpu_bytes: int = 100, gpu_bytes: int = 50) -> PlacementProblem:
    """Builds the problem with devices of these memory sizes."""
    devices = (ProblemDevice("cpu", "CPU", cpu_bytes), ProblemDevice("gpu", "GPU", gpu_bytes))
    return PlacementProblem(
        devices=devices,
        links=(Link("cpu", "gpu", 0.5, 10.0), Link("gpu", "cpu", 0.5, 10.0)),
        operation_names=("source", "left", "right"),
        compute_secs=np.array([[1.0, math.inf], [4.0, 1.0], [4.0, 1.0]]),
        resident_bytes=np.array([10, 0, 20], np.int64),
        temp_bytes=np.zeros(3, np.int64),
        groups=np.arange(3, dtype=np.int32),
        tensor_producers=np.zeros(1, np.int32),
        tensor_bytes=np.array([10], np.int64),
        consumer_start=np.array([0, 2], np.int32),
        consumers=np.array([1, 2], np.int32),
        control_edges=np.zeros([0, 2], np.int32),
    )


def build_layered_problem(num_groups: int, num_devices: int, seed: int = 0) -> PlacementProblem:
    """Builds a random chain of operations with shortcuts, two per group, legal everywhere."""
    rng = np.random.default_rng(seed)
    count = 2 * num_groups
    devices = tuple(ProblemDevice(f"device {i}", "CPU", 10**9) for i in range(num_devices))
    links = tuple(Link(a.name, b.name, 1e-5, 1e9) for a in devices for b in devices if a is not b)
    consumers = [[i + 1, *rng.integers(i + 1, count, size=2)] for i in range(count - 1)]
    return PlacementProblem(
        devices=devices,
        links=links,
        operation_names=tuple(f"operation {i}" for i in range(count)),
        compute_secs=rng.uniform(1e-4, 1e-3, [count, num_devices]),
        resident_bytes=rng.integers(0, 1000, count),
        temp_bytes=rng.integers(0, 1000, count),
        groups=(np.arange(count) // 2).astype(np.int32),
        tensor_producers=np.arange(count - 1, dtype=np.int32),
        tensor_bytes=rng.integers(0, 100_000, count - 1),
        consumer_start=np.arange(0, 3 * count - 2, 3, dtype=np.int32),
        consumers=np.array(consumers, np.int32).ravel(),
        control_edges=np.zeros([0, 2], np.int32),
    )


def without_memory(problem: PlacementProblem) -> PlacementProblem:
    """Builds the problem with devices without memory."""
    devices = tuple(dataclasses.replace(device, memory_bytes=0) for device in problem.devices)
    return dataclasses.replace(problem, devices=devices)


def rename_devices(problem: PlacementProblem, names: list[str]) -> PlacementProblem:
    """Gives the devices of a problem other names."""
    new = dict(zip((device.name for device in problem.devices), names, strict=True))
    return dataclasses.replace(
        problem,
        devices=tuple(dataclasses.replace(d, name=new[d.name]) for d in problem.devices),
        links=tuple(
            dataclasses.replace(link, source=new[link.source], destination=new[link.destination])
            for link in problem.links
        ),
    )
