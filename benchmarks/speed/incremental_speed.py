"""How many moves of single groups a second are evaluated, beside full simulations.

For each problem, random moves from a placement on one device and from one that a search has
improved. What is compared takes turns move by move, and what it takes is the processor time of its
thread, so that a disturbance of the machine falls on all of it. Every result is compared with that
of the full simulation.

Without further arguments, training graphs of unrolled LSTMs on one CPU and four GPUs; models of the
papers are made by `python -m benchmarks.problems.export`.
"""

from __future__ import annotations

import argparse
import functools
import math
import pathlib
import platform
import sys
import time
from collections.abc import Iterator

import numba
import numpy as np

from benchmarks.harness.processor import processor_name
from benchmarks.problems.synthetic import unrolled_lstm
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem
from tf_placer.problem.problem_groups import legal_devices
from tf_placer.simulation.incremental import IncrementalSimulator, MovedStep
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table

__all__ = ["main"]

# (layers, steps) of about 1,000, 8,000 and 20,000 operations.
_SIZES = ((2, 12), (4, 49), (4, 120))
_HEADERS = (
    "problem", "operations", "groups", "placement", "step", "full", "exact", "with limit", "cut",
    "new base",
)  # fmt: skip
# Moves whose times are not counted: what is compiled is loaded, and caches fill.
_WARM_UP = 5


def main() -> None:
    """Measures all problems, and prints and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=[], help="problem files beside the LSTMs")
    parser.add_argument("--moves", type=int, default=200, help="per placement (default 200)")
    parser.add_argument(
        "--search_moves", type=int, default=5000, help="of the search before (default 5000)"
    )
    parser.add_argument("--out_dir", default="benchmarks/results/incremental_speed")
    args = parser.parse_args()
    rows = []
    for name, problem in _problems(args.problems):
        rows += _rows(name, problem, args.moves, args.search_moves)
        print(f"{name}: done", file=sys.stderr)
    text = (
        f"{table(_HEADERS, rows, 'lrrlrrrrrr')}\n\n"
        "full: one simulation of all. exact: the same result by an incremental one, how many times "
        "as fast.\nwith limit: the same, where steps that are not shorter than that of the "
        "placement may be cut, as a search\nthat wants a better one does. cut: the share that was. "
        "new base: what it takes to go on from a move,\nas a multiple of a full simulation. Means "
        "over the moves, one thread, seed 0.\n"
        f"command: {' '.join(['python -m benchmarks.speed.incremental_speed', *sys.argv[1:]])}\n"
        f"versions: Python {platform.python_version()}, numba {numba.__version__}, "
        f"NumPy {np.__version__}\n"
        f"machine: {processor_name()}"
    )
    print(text)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.txt").write_text(text + "\n")


def _problems(files: list[str]) -> Iterator[tuple[str, PlacementProblem]]:
    for layers, steps in _SIZES:
        yield f"LSTM, {layers} layers, {steps} steps", unrolled_lstm(layers, steps)
    for file in files:
        path = pathlib.Path(file)
        # Problems of one name with other groups are in other folders.
        yield f"{path.stem}, {path.parent.name}", read_problem(path)


def _rows(
    name: str, problem: PlacementProblem, num_moves: int, search_moves: int
) -> list[list[str]]:
    moves = _Moves(problem)
    incremental = IncrementalSimulator(problem)
    placement = moves.one_device()
    rows = []
    for title in ("one device", "searched"):
        if title == "searched":
            placement = _search(incremental, moves, search_moves)
        cells = _measure(problem, incremental, moves, placement, num_moves)
        rows.append([name, f"{problem.num_operations:,}", f"{problem.num_groups:,}", title, *cells])
    return rows


class _Moves:
    """Random moves of single groups."""

    def __init__(self, problem: PlacementProblem) -> None:
        self._rng = np.random.default_rng(0)
        self._legal = legal_devices(problem)
        self._movable = np.flatnonzero(self._legal.sum(axis=1) > 1)

    def one_device(self) -> np.ndarray:
        """Places everything on device 1, and on the first legal one what may not go there."""
        return np.where(self._legal[:, 1], 1, self._legal.argmax(axis=1)).astype(np.int32)

    def draw(self, placement: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Draws a group, and another device for it than it has."""
        group = self._rng.choice(self._movable)
        devices = np.flatnonzero(self._legal[group])
        device = self._rng.choice(devices[devices != placement[group]])
        return np.array([group]), np.array([device])


def _search(incremental: IncrementalSimulator, moves: _Moves, num_moves: int) -> np.ndarray:
    """Takes every move that is feasible and not slower."""
    best = incremental.set_base(moves.one_device())
    for _ in range(num_moves):
        move = moves.draw(incremental.base)
        limit_secs = best.step_secs if best.feasible else math.inf
        step = incremental.evaluate(*move, limit_secs)
        if not step.is_cut and (step.feasible or not best.feasible):
            best = incremental.accept(*move)
    return incremental.base


def _measure(
    problem: PlacementProblem,
    incremental: IncrementalSimulator,
    moves: _Moves,
    placement: np.ndarray,
    num_moves: int,
) -> list[str]:
    full = Simulator(problem, threads=1)
    base = incremental.set_base(placement)
    limit_secs = math.nextafter(base.step_secs, 0.0)
    rng = np.random.default_rng(0)
    secs = np.zeros([_WARM_UP + num_moves, 4])
    num_cut = 0
    for number in range(len(secs)):
        move = moves.draw(placement)
        moved = placement.copy()
        moved[move[0]] = move[1]
        calls = (
            functools.partial(_full, full, moved),
            functools.partial(incremental.evaluate, *move),
            functools.partial(incremental.evaluate, *move, limit_secs=limit_secs),
        )
        steps: list[MovedStep | None] = [None] * len(calls)
        for call in rng.permutation(len(calls)):
            start = time.thread_time()
            steps[call] = calls[call]()
            secs[number, call] = time.thread_time() - start
        expected, exact, limited = steps
        assert expected and exact and limited
        assert (exact.step_secs, exact.feasible) == (expected.step_secs, expected.feasible)
        assert (exact.peak_bytes == expected.peak_bytes).all()
        assert not limited.is_cut or expected.step_secs > limit_secs
        num_cut += limited.is_cut and number >= _WARM_UP
        if number % 10 == 0:
            start = time.thread_time()
            incremental.accept(*move)
            secs[number, 3] = time.thread_time() - start
            incremental.set_base(placement)
    secs = secs[_WARM_UP:]
    full_secs, exact_secs, limited_secs = secs[:, :3].mean(axis=0)
    accept_secs = secs[secs[:, 3] > 0, 3].mean()
    return [
        f"{1e3 * base.step_secs:.1f} ms",
        f"{1e6 * full_secs:,.0f} us",
        f"{full_secs / exact_secs:.2f}x",
        f"{full_secs / limited_secs:.2f}x",
        f"{num_cut / len(secs):.0%}",
        f"{accept_secs / full_secs:.1f}",
    ]


def _full(simulator: Simulator, placement: np.ndarray) -> MovedStep:
    batch = simulator.simulate(placement[np.newaxis])
    return MovedStep(float(batch.step_secs[0]), batch.peak_bytes[0], bool(batch.feasible[0]))


if __name__ == "__main__":
    main()
