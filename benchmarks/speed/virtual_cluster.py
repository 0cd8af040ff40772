"""How long the simulator and TensorFlow's own `VirtualCluster` take for the same placements.

The graphs are language models that are unrolled further and further, on a CPU and four GPUs, with
random placements of their groups. Both take turns in one process and use one thread.
`VirtualCluster` simulates the placed graph as it is, without operations for transfers; what it
takes for a placement besides is not counted, see `virtual_cluster_secs`.
"""

from __future__ import annotations

import argparse
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.models import language_model
from benchmarks.simulator.virtual_cluster import one_cpu_and_k80s, virtual_cluster_secs
from benchmarks.simulator.virtual_graphs import virtual_graph
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table

__all__ = ["compare_speed", "main"]

# Unrolled steps, for about 1,000, 8,000 and 20,000 operations of four layers.
_STEPS = (3, 28, 70)
_NUM_GPUS = 4
# The simulator is too fast to measure one placement.
_BATCH = 50
_HEADERS = ("operations", "VirtualCluster", "simulator", "ratio", "no memory", "ratio, no memory")


def compare_speed(rounds: int) -> str:
    """Measures all sizes.

    Args:
        rounds: of both, per size.

    Returns:
        A table: medians over the rounds of seconds per placement, and of their ratio.
    """
    return table(_HEADERS, [_row(steps, rounds) for steps in _STEPS], "r" * len(_HEADERS))


def _row(num_steps: int, rounds: int) -> list[str]:
    # Small tensors: how long a simulation takes does not depend on their size.
    model = language_model.build(layers=4, steps=num_steps, units=8, batch=2, vocabulary=20)
    graph_def, fetches = model.graph.as_graph_def(), [model.train_op]
    graph = OpGraph.from_graph_def(graph_def, fetches)
    grouped = group_operations(graph)
    # What is left alone runs on the CPU: one more group.
    alone = grouped.group_graph.num_groups
    groups = np.where(grouped.operation_groups < 0, alone, grouped.operation_groups)
    devices = one_cpu_and_k80s(_NUM_GPUS)
    problem = virtual_graph(graph, fetches, groups, devices, 8e9).problem
    simulators = [Simulator(problem, memory=memory, threads=1) for memory in (True, False)]
    random = np.random.default_rng(0)
    secs = []
    for _ in range(rounds + 1):
        placements = random.integers(
            len(devices), size=[_BATCH, problem.num_groups], dtype=np.int32
        )
        device_names = [devices[d].name for d in placements[0][groups]]
        theirs = virtual_cluster_secs(
            graph_def, fetches, dict(zip(graph.names, device_names, strict=True)), devices
        )
        ours = []
        for simulator in simulators:
            start = time.perf_counter()
            simulator.simulate(placements)
            ours.append((time.perf_counter() - start) / _BATCH)
        secs.append([theirs, *ours])
    measured = np.array(secs[1:])  # The first round is for the caches.
    theirs, ours, without_memory = np.median(measured, axis=0)
    ratios = np.median(measured[:, :1] / measured[:, 1:], axis=0)
    return [
        f"{problem.num_operations:,}",
        f"{1e3 * theirs:,.0f} ms",
        f"{1e3 * ours:.3f} ms",
        f"{ratios[0]:,.0f}x",
        f"{1e3 * without_memory:.3f} ms",
        f"{ratios[1]:,.0f}x",
    ]


def main() -> None:
    """Measures all sizes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="per size (default 7)")
    args = parser.parse_args()
    print(compare_speed(args.rounds))


if __name__ == "__main__":
    main()
