"""The throughput of the simulator, in placements a second, by the size of the graph.

Training graphs of an LSTM that is unrolled further and further, on one CPU and four GPUs, with
random placements of the groups. What is compared takes turns, so that a disturbance of the machine
falls on all of it; every number is a median over the rounds.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from benchmarks.harness.table_file import write_table
from benchmarks.problems.synthetic import unroll_lstm
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table

__all__ = ["main"]

# (layers, steps) of about 1,000, 8,000, 20,000 and 100,000 operations.
_SIZES = ((2, 12), (4, 49), (4, 120), (8, 302))
# About as many are simulated in one turn, with one thread.
_OPERATIONS = 2_000_000
_HEADERS = ["operations", "transfers", "placements/s", "2 threads"]
_NOTES = """
transfers: from device to device, per placement. 2 threads: placements per second, as a multiple of
those of one thread, which all else is of.
"""


def main() -> None:
    """Measures all sizes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="per size (default 15)")
    args = parser.parse_args()
    rows = [_row(*size, args.rounds) for size in _SIZES]
    write_table(f"{table(_HEADERS, rows, 'r' * len(_HEADERS))}\n{_NOTES}")


def _row(num_layers: int, num_steps: int, rounds: int) -> list[str]:
    problem = unroll_lstm(num_layers, num_steps)
    num_operations = problem.num_operations
    # Two threads get an equal number each, in pieces of equal size.
    num_placements = 2 * max(1, round(_OPERATIONS / num_operations / 2))
    placements = np.random.default_rng(0).integers(
        problem.num_devices, size=[num_placements, problem.num_groups], dtype=np.int32
    )
    one, two = Simulator(problem, threads=1), Simulator(problem, threads=2)
    num_transfers = np.mean([len(one.trace(row).transfers.bytes) for row in placements[:10]])
    secs = [[_secs(simulator, placements) for simulator in (one, two)] for _ in range(rounds + 1)]
    secs_of_one, secs_of_two = np.array(secs[1:]).T  # The first is for the caches.
    return [
        f"{num_operations:,}",
        f"{num_transfers:,.0f}",
        f"{num_placements / np.median(secs_of_one):,.0f}",
        f"{np.median(secs_of_one / secs_of_two):.2f}x",
    ]


def _secs(simulator: Simulator, placements: np.ndarray) -> float:
    start = time.perf_counter()
    simulator.simulate(placements)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
