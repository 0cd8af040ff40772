"""Random problems on machines of the catalog, whose devices may be unequal."""

from __future__ import annotations

import numpy as np

from tf_placer.machines.catalog import make_described_machine
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["make_mixed_problem"]


def make_mixed_problem(
    rng: np.random.Generator, spec: str, num_operations: int, *, filled_share: float = 0.0
) -> PlacementProblem:
    """Makes a problem with an operation in each group.

    Operations take longer than their tensors on links, and are several times as fast on some of the
    devices as on others.

    Args:
        rng: the source of random numbers.
        spec: a name of the catalog.
        num_operations: the number of operations.
        filled_share: the variables of all operations, as a share of the memory of all GPUs.
    """
    machine = make_described_machine(spec)
    classes = [machine.find_class(device) for device in machine.devices]
    rates = np.array([each.peak_flops * each.compute_fraction for each in classes])
    launches = np.array([each.launch_secs for each in classes])
    flops = rng.uniform(2e9, 2e10, [num_operations, 1])
    edges = [
        (int(rng.integers(after)), after)
        for after in range(1, num_operations)
        for _ in range(int(rng.integers(1, 3)))
    ]
    gpu_bytes = sum(d.memory_bytes or 0 for d in machine.devices if d.type == "GPU")
    shares = rng.dirichlet(np.full(num_operations, 4.0))
    return PlacementProblem(
        devices=tuple(
            ProblemDevice(
                device.name,
                str(device.model),
                device.memory_bytes or 0,
                is_asynchronous=device.type == "GPU",
            )
            for device in machine.devices
        ),
        links=machine.links,
        operation_names=tuple(f"operation_{number}" for number in range(num_operations)),
        compute_secs=launches + flops / rates,
        resident_bytes=(filled_share * gpu_bytes * shares).astype(np.int64),
        temp_bytes=np.zeros(num_operations, np.int64),
        groups=np.arange(num_operations),
        tensor_producers=np.array([before for before, _ in edges]),
        tensor_bytes=rng.integers(1, 10, len(edges)) * 200_000,
        consumer_start=np.arange(len(edges) + 1),
        consumers=np.array([after for _, after in edges]),
        control_edges=np.zeros([0, 2], np.int64),
    )
