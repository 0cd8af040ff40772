"""Small training steps whose outputs wait for a backward pass."""

from __future__ import annotations

import dataclasses

import numpy as np

from tests.tf_placer.placers.problems import build_task_problem
from tf_placer.problem.placement_problem import PlacementProblem

__all__ = ["build_repeatable", "build_training"]

# Three operations of a forward pass, whose outputs the backward pass reads in reverse.
_SECS = 10.0


def build_training(memory_bytes: int, *, back_bytes_per_sec: float = 4.0) -> PlacementProblem:
    """Builds a training step on a CPU, which may run nothing of it, and a GPU.

    The link to the CPU carries 4 bytes per second.
    """
    tensors = [(0, (1, 5), 4), (1, (2, 4), 4), (2, (3,), 4), (3, (4,), 1), (4, (5,), 1)]
    problem = build_task_problem(
        [(np.inf, _SECS)] * 6,
        [(producer, readers[0], size) for producer, readers, size in tensors],
        memory_bytes=[1000, memory_bytes],
    )
    return dataclasses.replace(
        problem,
        consumer_start=np.cumsum([0] + [len(readers) for _, readers, _ in tensors]),
        consumers=np.array([reader for _, readers, _ in tensors for reader in readers]),
        links=tuple(
            dataclasses.replace(link, bandwidth_bytes_per_sec=rate)
            for link, rate in zip(problem.links, (back_bytes_per_sec, 4.0), strict=True)
        ),
    )


def build_repeatable(
    memory_bytes: int, types: str = "MatMul Tanh Tanh MatMul Mul Mul"
) -> PlacementProblem:
    """Builds three operations whose outputs a backward pass reads in reverse, with their types.

    The second one takes 2 s, all others 10 s; every output takes 4 bytes, of the backward pass 1.
    """
    problem = build_training(memory_bytes)
    secs = problem.compute_secs.copy()
    secs[1, 1] = 2.0
    return dataclasses.replace(problem, compute_secs=secs, operation_types=tuple(types.split()))
