"""The narrowing of Post's distribution over two operations: its figure 1, of a small problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_placer.environments.simulated import SimulatedEnvironment
from tf_placer.machines.machine import Link
from tf_placer.placers import make_placer
from tf_placer.placers.learned.learned_placer import LearnedPlacer
from tf_placer.problem.placement_problem import PlacementProblem, ProblemDevice
from tf_placer.problem.problem_groups import group_graph, legal_devices

__all__ = ["draw_distribution", "learn_distributions", "two_operations"]

# After how many samples the distribution is looked at: 60 are for one update.
_STAGES = (0, 60, 720)


def two_operations() -> PlacementProblem:
    """Makes a problem of two operations that may overlap, with one best placement."""
    devices = tuple(ProblemDevice(f"GPU:{i}", "GPU", 10) for i in range(4))
    links = tuple(
        Link(a.name, b.name, 0.0, 1.0) for a in devices for b in devices if a.name != b.name
    )
    return PlacementProblem(
        devices=devices,
        links=links,
        operation_names=("operation 1", "operation 2"),
        compute_secs=np.array([[3.0, 2.0, 4.0, 3.0], [3.0, 4.0, 3.5, 2.0]]),
        resident_bytes=np.ones(2, np.int64),
        temp_bytes=np.zeros(2, np.int64),
        groups=np.arange(2),
        tensor_producers=np.zeros(0, np.int32),
        tensor_bytes=np.zeros(0, np.int64),
        consumer_start=np.zeros(1, np.int32),
        consumers=np.zeros(0, np.int32),
        control_edges=np.zeros((0, 2), np.int32),
    )


def learn_distributions(problem: PlacementProblem, seed: int = 0) -> dict[int, np.ndarray]:
    """Lets Post learn, and looks at its distribution at three stages.

    Returns:
        By the number of samples, float64 [num_devices, num_devices]: how probable it is that the
        first operation is on the device of the row and the second on that of the column.
    """
    placer = make_placer(
        "post",
        group_graph(problem),
        legal_devices(problem),
        seed=seed,
        options={},
        problem=problem,
    )
    assert isinstance(placer, LearnedPlacer)
    environment = SimulatedEnvironment(problem)
    stages = {}
    observed = 0
    for samples in _STAGES:
        while observed < samples:
            placements = placer.propose(placer.batch_size)
            placer.observe(placements, environment.measure(placements))
            observed += len(placements)
        # Post has a distribution for each operation, whatever the other does.
        stages[samples] = np.outer(*placer.agent.policy.probabilities())
    return stages


def draw_distribution(panels: Any, stages: dict[int, np.ndarray]) -> None:
    """Draws a 3-D bar chart for each stage."""
    for axes, (samples, share) in zip(panels, stages.items(), strict=True):
        rows, columns = np.indices(share.shape)
        axes.bar3d(
            rows.ravel() - 0.4, columns.ravel() - 0.4, 0, 0.8, 0.8, share.ravel(), color="#0072b2",
            edgecolor="white", linewidth=0.3,
        )  # fmt: skip
        axes.set_zlim(0, 1)
        axes.set_xlabel("device of operation 1", fontsize=7)
        axes.set_ylabel("device of operation 2", fontsize=7)
        axes.set_title(f"after {samples} samples", fontsize=9)
        axes.tick_params(labelsize=6)
        axes.set_xticks(range(len(share)))
        axes.set_yticks(range(len(share)))
