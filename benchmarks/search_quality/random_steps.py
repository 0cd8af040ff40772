"""Placement problems of random shapes and costs that look like steps of models."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["random_step"]

# The mean time of an operation on the fastest device.
_MEAN_SECS = 1e-3
_BANDWIDTH = 1e10
# Transfers take from next to nothing to far more than operations, as powers of ten.
_COMMUNICATION = (-2.0, 1.0)
_ENOUGH_BYTES = 2**50
_ILLEGAL_SHARE = 0.2


def random_step(random: np.random.Generator, num_groups: int, num_devices: int) -> PlacementProblem:
    """Draws a step with more memory than it needs, and with nothing resident.

    The groups are a chain, branches between a source and a sink, layers with edges at random, or
    the cells of a recurrent network. Some steps have a backward pass, whose operations are in the
    groups of the forward pass, and some have several operations per group. Devices are alike, of
    several speeds, or a CPU and accelerators; links have channels of their own or share a bus; in
    some problems groups may not go everywhere.

    Args:
        random: what it depends on.
        num_groups: how many groups.
        num_devices: how many devices.
    """
    shape = _SHAPES[random.integers(len(_SHAPES))]
    groups, edges = _operations(random, num_groups, shape(random, num_groups))
    count = len(groups)
    producers, tensor_of_producer = np.unique(edges[:, 0], return_inverse=True)
    order = np.argsort(tensor_of_producer, kind="stable")
    mean_bytes = _MEAN_SECS * _BANDWIDTH * 10.0 ** random.uniform(*_COMMUNICATION)
    tensor_bytes = mean_bytes * _draw_skewed(random, len(producers))
    devices, compute_secs = _costs(random, count, num_devices)
    legal = np.ones([num_groups, num_devices], np.bool_)
    if random.random() < 0.3:
        legal = random.random([num_groups, num_devices]) >= _ILLEGAL_SHARE
        legal[np.arange(num_groups), random.integers(num_devices, size=num_groups)] = True
    latency_secs = _MEAN_SECS * random.choice([0.0, 0.02, 0.2])
    channel = "bus" if random.random() < 0.3 else None
    return PlacementProblem(
        devices=devices,
        links=tuple(
            Link(source.name, destination.name, latency_secs, _BANDWIDTH, channel)
            for source, destination in itertools.permutations(devices, 2)
        ),
        operation_names=tuple(f"operation_{k}" for k in range(count)),
        compute_secs=np.where(legal[groups], compute_secs, np.inf),
        resident_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        groups=groups,
        tensor_producers=producers,
        tensor_bytes=tensor_bytes.astype(np.int64),
        consumer_start=np.cumsum([0, *np.bincount(tensor_of_producer)]),
        consumers=edges[order, 1],
        control_edges=np.zeros([0, 2], np.int64),
    )


def _draw_skewed(random: np.random.Generator, count: int) -> np.ndarray:
    """Draws positive numbers around 1, hardly or very different from each other."""
    return random.lognormal(0.0, random.choice([0.1, 0.5, 1.0]), count)


def _chain(random: np.random.Generator, count: int) -> list[tuple[int, int]]:
    # Some connections skip a few.
    skips = [(k, k + int(random.integers(2, 4))) for k in range(count) if random.random() < 0.2]
    return [*itertools.pairwise(range(count)), *((a, b) for a, b in skips if b < count)]


def _branches(random: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Chains between the first and the last."""
    last = count - 1
    ends = [0] * int(random.integers(2, 6))
    edges = []
    for node in range(1, last):
        branch = int(random.integers(len(ends)))
        edges.append((ends[branch], node))
        ends[branch] = node
    return [*edges, *((end, last) for end in sorted(set(ends)) if end != last)]


def _layers(random: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Layers of a few; everything reads at least one of the layer before."""
    widest = int(random.integers(2, 5))
    layers, edges = [[0]], []
    while layers[-1][-1] < count - 1:
        first = layers[-1][-1] + 1
        layer = list(range(first, min(count, first + int(random.integers(1, widest + 1)))))
        for node in layer:
            number = int(random.integers(1, min(3, len(layers[-1]) + 1)))
            edges += [(int(k), node) for k in random.choice(layers[-1], number, replace=False)]
        layers.append(layer)
    return edges


def _cells(random: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Layers times steps."""
    num_layers = int(random.integers(2, 5))
    across = [(k, k + num_layers) for k in range(count - num_layers)]
    upwards = [(k, k + 1) for k in range(count - 1) if (k + 1) % num_layers]
    return [*across, *upwards]


_SHAPES: tuple[Callable[[np.random.Generator, int], list[tuple[int, int]]], ...] = (
    _chain,
    _branches,
    _layers,
    _cells,
)


def _operations(
    random: np.random.Generator, num_groups: int, edges: list[tuple[int, int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Draws the group of each operation, and edges between operations, none twice."""
    most = int(random.choice([1, 1, 3]))
    counts = random.integers(1, most + 1, num_groups)
    groups = np.repeat(np.arange(num_groups), counts)
    starts = np.cumsum([0, *counts])
    # The operations of a group are a chain.
    inside = [(k, k + 1) for k in range(len(groups) - 1) if groups[k] == groups[k + 1]]
    between = [(starts[b] - 1, starts[a]) for b, a in ((a + 1, b) for a, b in edges)]
    forward = np.array([*inside, *between], np.int64).reshape(-1, 2)
    if random.random() < 0.5:
        return groups, np.unique(forward, axis=0)
    # Operation k of the forward pass has operation 2n - 1 - k of the backward pass, which reads
    # what it made.
    count = len(groups)
    backward = 2 * count - 1 - forward[:, ::-1]
    kept = np.stack([np.arange(count), 2 * count - 1 - np.arange(count)], axis=1)
    joined = np.concatenate([forward, backward, kept])
    return np.concatenate([groups, groups[::-1]]), np.unique(joined, axis=0)


def _costs(
    random: np.random.Generator, num_operations: int, num_devices: int
) -> tuple[tuple[ProblemDevice, ...], np.ndarray]:
    """Devices, and float64 [num_operations, num_devices]."""
    secs = _MEAN_SECS * _draw_skewed(random, num_operations)[:, None]
    kind = random.choice(["equal", "speeds", "cpu"])
    factors = np.ones([num_operations, num_devices])
    slots = [1] * num_devices
    if kind == "speeds":
        # Devices are faster or slower, and good at other things.
        factors *= random.uniform(1.0, 3.0, num_devices)
        factors *= random.lognormal(0.0, 0.3, factors.shape)
    elif kind == "cpu":
        # Some operations are no slower on the CPU.
        factors[:, 0] = 10.0 ** random.uniform(-0.3, 1.5, num_operations)
        slots[0] = int(random.choice([1, 4]))
    names = [f"{'CPU' if kind == 'cpu' and not d else 'GPU'}:{d}" for d in range(num_devices)]
    devices = tuple(
        ProblemDevice(name, name[:3], _ENOUGH_BYTES, slots[d]) for d, name in enumerate(names)
    )
    return devices, secs * factors
