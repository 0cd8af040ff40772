"""How many operations a second the simulator simulates, and how that changes with the graph.

Training graphs of an LSTM that is unrolled further and further, on one CPU and four GPUs, with
random placements of the groups. What is compared takes turns, so that a disturbance of the machine
falls on all of it; every number is a median over the rounds. A second table has the simulator
beside TensorFlow's own, see `benchmarks.speed.virtual_cluster`.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time

import numpy as np

from benchmarks.problems.synthetic import unrolled_lstm
from benchmarks.speed.virtual_cluster import compare_speed
from tf_placer.machines.processor import processor_name
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table

__all__ = ["main"]

# (layers, steps) of about 1,000, 8,000, 20,000 and 100,000 operations.
_SIZES = ((2, 12), (4, 49), (4, 120), (8, 302))
_HEADERS = (
    "operations",
    "transfers",
    "ns/op",
    "Mop/s",
    "placements/s",
    "ns/op, no memory",
    "Mop/s, no memory",
    "placements/s, no memory",
    "2 threads",
)


def main() -> None:
    """Measures all sizes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="per size (default 15)")
    parser.add_argument(
        "--operations",
        type=int,
        default=2_000_000,
        help="to simulate with one thread in one turn, about (default 2000000)",
    )
    args = parser.parse_args()
    rows = [_row(*size, args.rounds, args.operations) for size in _SIZES]
    print(table(_HEADERS, rows, "r" * len(_HEADERS)))
    print(f"\n{compare_speed(max(1, args.rounds // 2))}")
    print(
        "\ntransfers: from device to device, per placement. 2 threads: placements per second, with "
        "memory, as a\nmultiple of those of one thread. All else is of one thread.\n"
        f"command: {' '.join(['python -m benchmarks.speed.simulator', *sys.argv[1:]])}\n"
        f"versions: Python {platform.python_version()}, NumPy {np.__version__}\n"
        f"machine: {processor_name()}, {len(os.sched_getaffinity(0))} cores"
    )


def _row(num_layers: int, num_steps: int, rounds: int, num_simulated: int) -> list[str]:
    problem = unrolled_lstm(num_layers, num_steps)
    num_operations = problem.num_operations
    # Two threads get an equal number each, in pieces of equal size.
    num_placements = 2 * max(1, round(num_simulated / num_operations / 2))
    placements = np.random.default_rng(0).integers(
        problem.num_devices, size=[num_placements, problem.num_groups], dtype=np.int32
    )
    one, two = Simulator(problem, threads=1), Simulator(problem, threads=2)
    without_memory = Simulator(problem, memory=False, threads=1)
    num_transfers = np.mean([len(one.trace(row).transfers.bytes) for row in placements[:10]])
    secs = np.array(
        [
            [_secs(simulator, placements) for simulator in (one, without_memory, two)]
            for _ in range(rounds + 1)
        ]
    )[1:]  # The first round is for the caches.
    cells = [f"{num_operations:,}", f"{num_transfers:,.0f}"]
    for column in (0, 1):
        placement_secs = np.median(secs[:, column]) / num_placements
        cells += [
            f"{1e9 * placement_secs / num_operations:.1f}",
            f"{1e-6 * num_operations / placement_secs:.1f}",
            f"{1 / placement_secs:,.0f}",
        ]
    return [*cells, f"{np.median(secs[:, 0] / secs[:, 2]):.2f}x"]


def _secs(simulator: Simulator, placements: np.ndarray) -> float:
    start = time.perf_counter()
    simulator.simulate(placements)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
