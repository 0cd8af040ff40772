"""Problems with one known good placement, which the problem was built around.

Every problem consists of cells: chains of operations on one device of the known placement. Neither
the names nor the numbers of operations reveal the cells.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.simulation.simulator import Simulator

__all__ = ["measure_known_and_best"]

_OPERATION_SECS, _LATENCY_SECS, _BANDWIDTH = 1e-4, 1e-5, 1e10
_LENGTH, _LAYERS = 4, 8


def measure_known_and_best(
    family: str, num_operations: int, propose: Callable[[PlacementProblem], np.ndarray]
) -> tuple[float, float]:
    """Simulates the known placement of a problem of a family, and the best of the proposals."""
    cells = _Cells()
    _FAMILIES[family](cells, num_operations)
    problem, placement = cells.finish()
    simulator = Simulator(problem, threads=1)
    [known_secs] = simulator.simulate(placement[None]).step_secs
    return known_secs, simulator.simulate(propose(problem)).step_secs.min()


class _Cells:
    """Collects cells: the first operation of a cell reads the outputs of the last of others."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self._secs: list[float] = []
        self._devices: list[int] = []
        self._sizes: list[float] = []
        self._readers: list[list[int]] = []

    def add(
        self,
        device: int,
        inputs: Sequence[int] = (),
        *,
        work: float = 1.0,
        size: float = 0.2,
        length: int = _LENGTH,
    ) -> int:
        """Adds a cell, with work in usual operations and size in what a link sends in that time."""
        first = len(self._secs)
        for producer in dict.fromkeys(inputs):
            self._readers[producer].append(first)
        for number in range(first, first + length):
            self._secs.append(work * _OPERATION_SECS * self.random.lognormal(0.0, 0.1))
            self._devices.append(device)
            self._sizes.append(size * _OPERATION_SECS * _BANDWIDTH)
            self._readers.append([number + 1])
        self._readers[-1] = []
        return len(self._secs) - 1

    def finish(self) -> tuple[PlacementProblem, np.ndarray]:
        """Makes the problem and its known placement, with operations in a random order."""
        count, num_devices = len(self._secs), max(self._devices) + 1
        number = self.random.permutation(count)
        by_number = np.argsort(number)
        names = [f"gpu:{device}" for device in range(num_devices)]
        read = [self._readers[operation] for operation in by_number]
        nothing = np.zeros(count, np.int64)
        problem = PlacementProblem(
            devices=tuple(ProblemDevice(name, "GPU", 2**50) for name in names),
            links=tuple(
                Link(*pair, _LATENCY_SECS, _BANDWIDTH) for pair in itertools.permutations(names, 2)
            ),
            operation_names=tuple(f"operation_{k}" for k in range(count)),
            compute_secs=np.repeat(np.array(self._secs)[by_number, None], num_devices, axis=1),
            resident_bytes=nothing,
            temp_bytes=nothing,
            groups=np.arange(count),
            tensor_producers=np.arange(count),
            tensor_bytes=np.array(self._sizes)[by_number].astype(np.int64),
            consumer_start=np.cumsum([0, *map(len, read)]),
            consumers=number[np.fromiter(itertools.chain.from_iterable(read), np.int64)],
            control_edges=np.zeros([0, 2], np.int64),
        )
        return problem, np.array(self._devices, np.int32)[by_number]


def _grid(
    cells: _Cells, num_operations: int, size: float = 0.2, source: int | None = None
) -> list[int]:
    """Adds layers times steps, with a stage of layers per device, and returns the last layer."""
    before: list[int] = []
    top = []
    for _ in range(num_operations // (_LAYERS * _LENGTH)):
        row: list[int] = []
        for layer in range(_LAYERS):
            inputs = [row[-1]] if row else [] if source is None else [source]
            inputs += [before[layer]] if before else []
            row.append(cells.add(layer * 4 // _LAYERS, inputs, size=size))
        before = row
        top.append(row[-1])
    return top


def _slow_links(cells: _Cells, num_operations: int) -> None:
    """Makes a grid in which sending the output of a cell takes most of the time of the cell."""
    _grid(cells, num_operations, size=2.5)


def _wide_grid(cells: _Cells, num_operations: int) -> None:
    """Makes layers of two lanes, which read both lanes below; every lane has its own device."""
    before: list[list[int]] = []
    for _ in range(num_operations // (8 * _LENGTH)):
        row: list[list[int]] = []
        for layer in range(4):
            below = row[-1] if row else []
            own = [[before[layer][lane]] if before else [] for lane in range(2)]
            row.append([cells.add(2 * layer + k, [*below, *own[k]], size=0.1) for k in range(2)])
        before = row


def _encoder_decoder(cells: _Cells, num_operations: int) -> None:
    """Makes two grids one after the other; every device has a stage of both."""
    memory = cells.add(0, _grid(cells, num_operations // 2), size=1.0)
    _grid(cells, num_operations // 2, source=memory)


def _u_shape(cells: _Cells, num_operations: int) -> None:
    """Makes steps of a path down and a path up, with a tensor between them at every level."""
    before: list[list[int]] = []
    for _ in range(num_operations // (2 * _LAYERS * _LENGTH)):
        row: list[list[int]] = [[], []]
        for side, levels in enumerate([range(_LAYERS), range(_LAYERS - 1, -1, -1)]):
            for level in levels:
                inputs = [row[side][-1]] if row[side] else [row[0][-1]] if side else []
                inputs += [row[0][level]] if side else []
                inputs += [before[side][len(row[side])]] if before else []
                row[side].append(cells.add(level * 4 // _LAYERS, inputs, size=0.6))
        before = row


def _assign_longest_first(loads: np.ndarray) -> list[int]:
    """Assigns each load, the largest first, to the least loaded of four devices."""
    devices, taken = np.zeros(len(loads), int), np.zeros(4)
    for each in np.argsort(-loads, kind="stable"):
        devices[each] = taken.argmin()
        taken[devices[each]] += loads[each]
    return devices.tolist()


def _experts(cells: _Cells, num_operations: int) -> None:
    """Makes layers of four slices, each of which reads the outputs of eight shared experts."""
    slices: list[list[int]] = [[]] * 4
    for _ in range(num_operations // (12 * _LENGTH)):
        attended = [cells.add(device, inputs, size=0.1) for device, inputs in enumerate(slices)]
        loads = cells.random.lognormal(0.0, 0.3, 8)
        experts = [
            cells.add(device, attended, work=load, size=0.1)
            for load, device in zip(loads.tolist(), _assign_longest_first(loads), strict=True)
        ]
        slices = [[*experts, own] for own in attended]


def _tree(cells: _Cells, num_operations: int) -> None:
    """Makes subtrees of different sizes, and joins their roots."""
    shares = cells.random.uniform(0.5, 1.5, 24)
    sizes = (shares / shares.sum() * num_operations / 3).astype(int)
    roots: list[list[int]] = [[] for _ in range(4)]

    def join(nodes: list[int], device: int) -> int:
        while len(nodes) > 1:
            pair = [nodes.pop(int(cells.random.integers(len(nodes)))) for _ in range(2)]
            nodes.append(cells.add(device, pair, length=3))
        return nodes[0]

    for size, device in zip(sizes.tolist(), _assign_longest_first(sizes), strict=True):
        leaves = [cells.add(device, length=3) for _ in range((size + 1) // 2)]
        roots[device].append(join(leaves, device))
    join([join(each, device) for device, each in enumerate(roots)], 0)


def _chain_with_heads(cells: _Cells, num_operations: int) -> None:
    """Makes a chain of cells, each of which has a head that takes three times as long."""
    before: list[int] = []
    for step in range(num_operations // (2 * _LENGTH)):
        before = [cells.add(0, before)]
        cells.add(1 + step % 3, before, work=3.0)


_FAMILIES: dict[str, Callable[[_Cells, int], object]] = {
    "grid": _grid,
    "slow_links": _slow_links,
    "wide_grid": _wide_grid,
    "encoder_decoder": _encoder_decoder,
    "u_shape": _u_shape,
    "experts": _experts,
    "tree": _tree,
    "chain_with_heads": _chain_with_heads,
}
