"""Placement problems of any size one good placement of which is known, because it was made first.

Every problem is made of *cells*: chains of operations that belong to one device in the known
placement. Neither names nor numbers of operations and groups tell what belongs together, and no
problem knows layers or coarse groups.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice

__all__ = ["FAMILIES", "KnownProblem", "known_problem", "stretches"]

_OPERATION_SECS = 1e-4
_LATENCY_SECS = 1e-5
_BANDWIDTH = 1e10
# What a tensor has that takes as long to send as an operation takes to run, latency aside.
_OPERATION_BYTES = _OPERATION_SECS * _BANDWIDTH
_ENOUGH_BYTES = 2**50
# By how much operations of one kind differ.
_NOISE = 0.1
# Larger problems have longer cells, and more layers.
_LARGE = 5000


@dataclasses.dataclass(frozen=True, eq=False)
class KnownProblem:
    """A problem and a placement that is good by construction.

    Attributes:
        problem: what is placed.
        placement: int32 [num_groups], the known placement.
    """

    problem: PlacementProblem
    placement: np.ndarray


class _Cells:
    """Collects the cells of a problem.

    A cell is a chain of operations on one device. What it waits for is read by its first operation,
    and its last operation makes the one tensor that other cells read.
    """

    def __init__(self, random: np.random.Generator, length: int) -> None:
        """Begins without cells.

        Args:
            random: by how much operations differ.
            length: operations of a cell, unless it has another length.
        """
        self._random = random
        self._length = length
        self._secs: list[np.ndarray] = []
        self._devices: list[int] = []
        self._sizes: list[float] = []
        self._inputs: list[list[int]] = []
        self._resident: list[float] = []

    def add(
        self,
        device: int,
        inputs: Sequence[int] = (),
        *,
        work: float = 1.0,
        size: float = 0.2,
        length: int = 0,
        resident: float = 0.0,
    ) -> int:
        """Adds a cell and returns its number.

        Args:
            device: where it is in the known placement.
            inputs: the cells whose tensors it reads.
            work: what its operations take on average, by `_OPERATION_SECS`.
            size: of its tensor, by `_OPERATION_BYTES`.
            length: how many operations it has; 0 for as many as most cells.
            resident: what it holds all the time, by `_OPERATION_BYTES`.
        """
        noise = self._random.lognormal(0.0, _NOISE, length or self._length)
        self._secs.append(work * _OPERATION_SECS * noise)
        self._devices.append(device)
        self._sizes.append(size)
        self._inputs.append(list(inputs))
        self._resident.append(resident)
        return len(self._secs) - 1

    def finish(self, num_devices: int) -> KnownProblem:
        """Makes the problem of the cells, with everything numbered in a random order."""
        lengths = np.array([len(secs) for secs in self._secs])
        ends = np.cumsum(lengths)
        count = int(ends[-1])
        cell_of = np.repeat(np.arange(len(lengths)), lengths)
        number = self._random.permutation(count)
        last = np.zeros(count, np.bool_)
        last[ends - 1] = True
        readers: list[list[int]] = [[] for _ in lengths]
        for cell, inputs in enumerate(self._inputs):
            for each in dict.fromkeys(inputs):
                readers[each].append(int(ends[cell] - lengths[cell]))
        # The tensor of operation k is tensor k: to the next one of its cell, or to other cells.
        consumers = [
            [*(readers[cell] if is_last else [operation + 1])]
            for operation, (cell, is_last) in enumerate(zip(cell_of, last, strict=True))
        ]
        size = np.where(last, np.array(self._sizes)[cell_of], np.mean(self._sizes))
        resident = np.where(last, np.array(self._resident)[cell_of], 0.0)
        by_number = np.argsort(number)
        secs = np.concatenate(self._secs)[by_number]
        groups = self._random.permutation(count)
        placement = np.empty(count, np.int32)
        placement[groups] = np.array(self._devices)[cell_of][by_number]
        devices = tuple(ProblemDevice(f"gpu:{k}", "GPU", _ENOUGH_BYTES) for k in range(num_devices))
        read = [consumers[operation] for operation in by_number]
        problem = PlacementProblem(
            devices=devices,
            links=tuple(
                Link(source.name, destination.name, _LATENCY_SECS, _BANDWIDTH)
                for source, destination in itertools.permutations(devices, 2)
            ),
            operation_names=tuple(f"operation_{k}" for k in range(count)),
            compute_secs=np.repeat(secs[:, None], num_devices, axis=1),
            resident_bytes=(resident[by_number] * _OPERATION_BYTES).astype(np.int64),
            temp_bytes=np.zeros(count, np.int64),
            groups=groups,
            tensor_producers=np.arange(count),
            tensor_bytes=(size[by_number] * _OPERATION_BYTES).astype(np.int64),
            consumer_start=np.cumsum([0, *map(len, read)]),
            consumers=number[np.fromiter(itertools.chain.from_iterable(read), np.int64)],
            control_edges=np.zeros([0, 2], np.int64),
        )
        return KnownProblem(problem, placement)


def stretches(loads: Sequence[float], num_parts: int) -> np.ndarray:
    """Cuts a line into stretches so that the heaviest weighs as little as possible.

    Args:
        loads: what the places along the line weigh, at least one.
        num_parts: how many stretches at most.

    Returns:
        int64 [num_places], the stretch of each, from 0 and never decreasing.

    Example:
        >>> stretches([3.0, 1.0, 1.0, 1.0], 2).tolist()
        [0, 1, 1, 1]
    """
    ends = np.concatenate([[0.0], np.cumsum(loads)])
    least = ends.copy()
    cuts = []
    for _ in range(num_parts - 1):
        # heaviest[i, j]: with the last stretch from place i to before place j.
        heaviest = np.maximum(least[:, None], ends[None, :] - ends[:, None])
        heaviest[np.tril_indices(len(ends), -1)] = np.inf
        cuts.append(heaviest.argmin(axis=0))
        least = heaviest.min(axis=0)
    parts = np.empty(len(loads), np.int64)
    end = len(loads)
    for part in range(num_parts - 1, -1, -1):
        start = int(cuts[part - 1][end]) if part else 0
        parts[start:end] = part
        end = start
    return parts


def known_problem(family: str, num_operations: int, seed: int = 0) -> KnownProblem:
    """Makes a problem of a family.

    Args:
        family: one of `FAMILIES`.
        num_operations: about how many operations; 500 or more.
        seed: of everything random.

    Raises:
        ValueError: there is no such family, or there are too few operations.
    """
    if family not in FAMILIES:
        raise ValueError(f"there is no family {family!r}; choose one of {', '.join(FAMILIES)}")
    if num_operations < 500:
        raise ValueError(f"{num_operations} operations are too few: ask for 500 or more")
    random = np.random.default_rng([seed, list(FAMILIES).index(family)])
    return FAMILIES[family](num_operations, random)


def _grid_size(num_operations: int) -> tuple[int, int]:
    """Chooses the number of layers and the operations of a cell."""
    return (8, 4) if num_operations < _LARGE else (16, 6)


def _add_grid(
    cells: _Cells,
    loads: Sequence[float],
    devices: Sequence[int],
    num_steps: int,
    *,
    size: float = 0.2,
    first: Callable[[int], Sequence[int]] = lambda step: (),
) -> list[list[int]]:
    """Adds layers times steps: a cell reads the layer below and its layer a step before.

    Args:
        cells: gets the grid.
        loads: what an operation of each layer takes.
        devices: of the layers.
        num_steps: how many steps.
        size: of what cells exchange.
        first: what the first layer reads beside that.

    Returns:
        The cells, by step and layer.
    """
    grid: list[list[int]] = []
    for step in range(num_steps):
        row: list[int] = []
        for layer, (load, device) in enumerate(zip(loads, devices, strict=True)):
            inputs = [row[-1]] if row else list(first(step))
            if grid:
                inputs.append(grid[-1][layer])
            row.append(cells.add(int(device), inputs, work=load, size=size))
        grid.append(row)
    return grid


def _grid(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes equal layers; a stretch of them per device is a pipeline."""
    return _layered(num_operations, random, skew=0.0)


def _skewed_grid(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes layers of which some take three times as long as others."""
    return _layered(num_operations, random, skew=0.4)


def _slow_links(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes a grid where sending what a cell makes takes most of the time that it takes."""
    return _layered(num_operations, random, skew=0.2, size=2.5)


def _heavy_ends(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes a grid whose first and last layers take as long as several others."""
    return _layered(num_operations, random, skew=0.1, ends=3.0)


def _layered(
    num_operations: int,
    random: np.random.Generator,
    *,
    skew: float,
    size: float = 0.2,
    ends: float = 1.0,
) -> KnownProblem:
    num_layers, length = _grid_size(num_operations)
    loads = random.lognormal(0.0, skew, num_layers)
    loads[[0, -1]] *= ends
    cells = _Cells(random, length)
    num_steps = num_operations // (num_layers * length)
    _add_grid(cells, loads.tolist(), stretches(loads.tolist(), 4).tolist(), num_steps, size=size)
    return cells.finish(4)


def _wide_grid(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes layers of two lanes, which read both lanes below them; every lane has a device."""
    num_layers, length = 4, _grid_size(num_operations)[1]
    cells = _Cells(random, length)
    before: list[list[int]] = []
    for _ in range(num_operations // (2 * num_layers * length)):
        below: list[int] = []
        row: list[list[int]] = []
        for layer in range(num_layers):
            lanes = [
                cells.add(
                    2 * layer + lane, [*below, *([before[layer][lane]] if before else [])], size=0.1
                )
                for lane in range(2)
            ]
            row.append(lanes)
            below = lanes
        before = row
    return cells.finish(2 * num_layers)


def _encoder_decoder(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes two grids one after the other; every device has a stretch of both."""
    num_layers, length = _grid_size(num_operations)
    num_steps = num_operations // (2 * num_layers * length)
    cells = _Cells(random, length)
    loads = [random.lognormal(0.0, 0.2, num_layers).tolist() for _ in range(2)]
    devices = [stretches(each, 4).tolist() for each in loads]
    encoder = _add_grid(cells, loads[0], devices[0], num_steps)
    outputs = [row[-1] for row in encoder]
    memory = cells.add(devices[1][0], outputs, size=1.0)
    _add_grid(cells, loads[1], devices[1], num_steps, first=lambda step: [memory])
    return cells.finish(4)


def _towers(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes towers of different heights that share their parameters, two or three per device."""
    length = _grid_size(num_operations)[1]
    heights = random.uniform(0.7, 1.3, 10)
    heights = np.maximum(heights / heights.sum() * num_operations / length, 4).astype(int)
    devices = _by_longest(heights.astype(float), 4)
    num_parameters = 8
    cells = _Cells(random, length)
    parameters = [
        cells.add(k % 4, length=1, work=0.1, size=2.0, resident=2.0) for k in range(num_parameters)
    ]
    gradients: list[list[int]] = [[] for _ in parameters]
    for height, device in zip(heights.tolist(), devices.tolist(), strict=True):
        top: list[int] = []
        for floor in range(height):
            layer = floor * num_parameters // height
            top = [cells.add(device, [*top, parameters[layer]])]
            if floor == height - 1 or (floor + 1) * num_parameters // height != layer:
                gradients[layer].append(cells.add(device, top, length=1, work=0.1, size=2.0))
    for layer, some in enumerate(gradients):
        cells.add(layer % 4, [*some, parameters[layer]], length=1, work=0.1)
    return cells.finish(4)


def _by_longest(loads: np.ndarray, num_devices: int) -> np.ndarray:
    """Gives each load, the largest first, to the device that has the least."""
    devices = np.empty(len(loads), np.int64)
    taken = np.zeros(num_devices)
    for each in np.argsort(-loads, kind="stable"):
        devices[each] = taken.argmin()
        taken[devices[each]] += loads[each]
    return devices


def _u_shape(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes steps of a way down and a way up; the one sends the other a tensor at every level."""
    num_levels, length = 8, _grid_size(num_operations)[1]
    loads = random.lognormal(0.0, 0.2, [2, num_levels])
    devices = stretches(loads.sum(axis=0).tolist(), 4).tolist()
    cells = _Cells(random, length)
    before: list[list[int]] = []
    for _ in range(num_operations // (2 * num_levels * length)):
        row: list[list[int]] = [[], []]
        for side, levels in enumerate([range(num_levels), range(num_levels - 1, -1, -1)]):
            for level in levels:
                inputs = [row[side][-1]] if row[side] else [row[0][-1]] if side else []
                inputs += [row[0][level]] if side else []
                inputs += [before[side][len(row[side])]] if before else []
                row[side].append(
                    cells.add(devices[level], inputs, work=loads[side, level], size=0.6)
                )
        before = row
    return cells.finish(4)


def _experts(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes layers of four slices, each of which sends some to eight experts and joins them."""
    length, num_devices, num_experts = _grid_size(num_operations)[1], 4, 8
    cells = _Cells(random, length)
    slices: list[list[int]] = [[] for _ in range(num_devices)]
    for _ in range(max(1, num_operations // ((num_devices + num_experts) * length))):
        attended = [cells.add(d, inputs, size=0.1) for d, inputs in enumerate(slices)]
        loads = random.lognormal(0.0, 0.3, num_experts)
        devices = _by_longest(loads, num_devices)
        experts = [
            cells.add(int(device), attended, work=load, size=0.1)
            for load, device in zip(loads.tolist(), devices, strict=True)
        ]
        slices = [[*experts, own] for own in attended]
    return cells.finish(num_devices)


def _tree(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes subtrees of different sizes and what joins them."""
    num_devices, num_subtrees = 4, 24
    shares = random.uniform(0.5, 1.5, num_subtrees)
    sizes = np.maximum(shares / shares.sum() * num_operations / 3, 3).astype(int)
    devices = _by_longest(sizes.astype(float), num_devices)
    cells = _Cells(random, 3)

    def join(nodes: list[int], device: int, count: int) -> list[int]:
        """Joins two at a time, any two, until there are few."""
        while len(nodes) > count:
            pair = [nodes.pop(int(random.integers(len(nodes)))) for _ in range(2)]
            nodes.append(cells.add(device, pair))
        return nodes

    roots: list[list[int]] = [[] for _ in range(num_devices)]
    for size, device in zip(sizes.tolist(), devices.tolist(), strict=True):
        leaves = [cells.add(device) for _ in range((size + 1) // 2)]
        roots[device] += join(leaves, device, 1)
    join([join(each, device, 1)[0] for device, each in enumerate(roots)], 0, 1)
    return cells.finish(num_devices)


def _chain_with_heads(num_operations: int, random: np.random.Generator) -> KnownProblem:
    """Makes a chain every link of which has a head that takes three times as long."""
    length = _grid_size(num_operations)[1]
    cells = _Cells(random, length)
    before: list[int] = []
    for step in range(num_operations // (2 * length)):
        before = [cells.add(0, before)]
        cells.add(1 + step % 3, before, work=3.0)
    return cells.finish(4)


FAMILIES: Mapping[str, Callable[[int, np.random.Generator], KnownProblem]] = {
    "grid": _grid,
    "skewed_grid": _skewed_grid,
    "slow_links": _slow_links,
    "heavy_ends": _heavy_ends,
    "wide_grid": _wide_grid,
    "encoder_decoder": _encoder_decoder,
    "towers": _towers,
    "u_shape": _u_shape,
    "experts": _experts,
    "tree": _tree,
    "chain_with_heads": _chain_with_heads,
}
"""The families of problems, by name."""
