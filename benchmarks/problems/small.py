"""Placement problems that are small enough to try every placement, each hard in its own way."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.simulator import Simulator

__all__ = ["SMALL_PROBLEMS", "all_step_secs", "is_optimal"]

_MIB = 2**20
_SMALL, _MEDIUM, _LARGE = 1 * _MIB, 20 * _MIB, 100 * _MIB
_BANDWIDTH = 1e9
_LATENCY_SECS = 1e-3
_ROUNDING = 1e-9


def _problem(
    compute_secs: Sequence[Sequence[float]],
    edges: Sequence[tuple[int, int, int]],
    *,
    resident_bytes: Sequence[int] | None = None,
    memory_bytes: int = 2**34,
) -> PlacementProblem:
    """Makes a problem, one group per operation; edges are (from, to, bytes); device 0 is a CPU."""
    secs = np.array(compute_secs, np.float64)
    count, num_devices = secs.shape
    devices = tuple(
        ProblemDevice(f"device:{d}", "GPU" if d else "CPU", memory_bytes)
        for d in range(num_devices)
    )
    consumers = [to for _, to, _ in edges]
    return PlacementProblem(
        devices=devices,
        links=tuple(
            Link(source.name, destination.name, _LATENCY_SECS, _BANDWIDTH)
            for source, destination in itertools.permutations(devices, 2)
        ),
        operation_names=tuple(f"operation_{k}" for k in range(count)),
        compute_secs=secs,
        resident_bytes=np.array(resident_bytes or [0] * count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        groups=np.arange(count),
        tensor_producers=np.array([source for source, _, _ in edges]),
        tensor_bytes=np.array([size for _, _, size in edges]),
        consumer_start=np.arange(len(edges) + 1),
        consumers=np.array(consumers),
        control_edges=np.zeros([0, 2], np.int64),
    )


def _two_chains() -> PlacementProblem:
    """Makes two chains of four that have nothing to do with each other, on two equal devices.

    Either all of a chain moves or nothing is won: what splits a chain waits for transfers.
    """
    chains = (range(0, 4), range(4, 8))
    edges = [(a, b, _LARGE) for chain in chains for a, b in itertools.pairwise(chain)]
    return _problem([[0.1, 0.1]] * 8, edges)


def _chain() -> PlacementProblem:
    """Makes a chain of eight on two equal devices: whatever is split only waits for transfers."""
    return _problem([[0.1, 0.1]] * 8, [(k, k + 1, _LARGE) for k in range(7)])


def _fork_join() -> PlacementProblem:
    """Makes four branches of unequal length between a source and a sink, on three equal devices."""
    secs = [0.05, 0.3, 0.22, 0.15, 0.1, 0.05]
    edges = [(0, k, _MEDIUM) for k in (1, 2, 3, 4)] + [(k, 5, _MEDIUM) for k in (1, 2, 3, 4)]
    return _problem([[value] * 3 for value in secs], edges)


def _memory() -> PlacementProblem:
    """Makes a chain whose weights do not fit on one device; it is cheapest to cut in one place."""
    sizes = [_LARGE] * 7
    sizes[3] = _SMALL
    return _problem(
        [[0.1, 0.1]] * 8,
        [(k, k + 1, size) for k, size in enumerate(sizes)],
        resident_bytes=[1000 * _MIB] * 8,
        memory_bytes=5500 * _MIB,
    )


def _heterogeneous() -> PlacementProblem:
    """Makes a slow CPU with an operation that only it runs, a fast GPU, and a slower one."""
    secs = [[0.02, np.inf, np.inf]]
    secs += [[0.8, 0.05, 0.1], [0.8, 0.1, 0.2], [0.02, 0.2, 0.2]]
    secs += [[0.8, 0.1, 0.12], [0.02, 0.2, 0.2]]
    edges = [(0, 1, _SMALL), (1, 2, _LARGE), (2, 3, _SMALL), (0, 4, _SMALL), (4, 5, _SMALL)]
    return _problem(secs, edges)


SMALL_PROBLEMS: Mapping[str, PlacementProblem] = {
    "two chains": _two_chains(),
    "chain": _chain(),
    "fork and join": _fork_join(),
    "memory": _memory(),
    "heterogeneous": _heterogeneous(),
}


def all_step_secs(problem: PlacementProblem) -> np.ndarray:
    """Computes the step times of all legal placements.

    Returns:
        float64 [num_placements], in increasing order; infinite for those that do not fit.
    """
    devices = [np.flatnonzero(row) for row in legal_devices(problem)]
    placements = np.array(list(itertools.product(*devices)), np.int32)
    batch = Simulator(problem).simulate(placements)
    return np.sort(np.where(batch.feasible, batch.step_secs, np.inf))


def is_optimal(step_secs: np.ndarray, fastest_secs: float) -> np.ndarray:
    """Says whether step times are the fastest, but for rounding in another order.

    Args:
        step_secs: float64, of any shape; infinite for what did not run.
        fastest_secs: the fastest step of all placements.

    Returns:
        bool, of the shape of `step_secs`.
    """
    return step_secs <= fastest_secs * (1 + _ROUNDING)
