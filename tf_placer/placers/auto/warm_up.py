"""Has compiled what searches in simulation, before time is shared out."""

from __future__ import annotations

import numpy as np

from tf_placer.machines.machine import Link
from tf_placer.placers.auto.auto_search import auto_search
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import group_graph

__all__ = ["warm_up"]


def warm_up() -> None:
    """Searches a problem of two operations: numba compiles what that takes, once per machine.

    The first time takes about a minute on one core, later ones a second.
    """
    devices = tuple(ProblemDevice(name, "CPU", 1) for name in "ab")
    problem = PlacementProblem(
        devices=devices,
        links=(Link("a", "b", 0.0, 1.0), Link("b", "a", 0.0, 1.0)),
        operation_names=("first", "second"),
        compute_secs=np.ones([2, 2]),
        resident_bytes=np.zeros(2, np.int64),
        temp_bytes=np.zeros(2, np.int64),
        groups=np.arange(2),
        tensor_producers=np.array([0]),
        tensor_bytes=np.array([1]),
        consumer_start=np.array([0, 1]),
        consumers=np.array([1]),
        control_edges=np.zeros([0, 2], np.int64),
    )
    auto_search(problem, group_graph(problem), max_secs=1.0, max_simulated=10, threads=1)
