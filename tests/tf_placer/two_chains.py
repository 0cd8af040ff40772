"""Problems of two independent chains of operations."""

from __future__ import annotations

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["two_chain_problem"]


def two_chain_problem(length: int, num_devices: int = 2) -> PlacementProblem:
    """Builds two independent chains of operations of 1 ms each, on equal devices.

    A tensor of a chain takes 1 ms to another device, so the best step takes `length` ms, one chain
    to a device, and anything else more.
    """
    count = 2 * length
    producers = np.array([i for i in range(count) if i % length != length - 1], np.int32)
    devices = tuple(ProblemDevice(f"device {i}", "GPU", 10**9) for i in range(num_devices))
    return PlacementProblem(
        devices=devices,
        links=tuple(Link(a.name, b.name, 0.0, 1e9) for a in devices for b in devices if a is not b),
        operation_names=tuple(f"operation {i}" for i in range(count)),
        compute_secs=np.full([count, num_devices], 1e-3),
        resident_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        groups=np.arange(count, dtype=np.int32),
        tensor_producers=producers,
        tensor_bytes=np.full(len(producers), 10**6, np.int64),
        consumer_start=np.arange(len(producers) + 1, dtype=np.int32),
        consumers=producers + 1,
        control_edges=np.zeros([0, 2], np.int32),
    )
