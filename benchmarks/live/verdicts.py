"""Repeated live searches of the same graph, quiet and disturbed, and their verdicts.

Two of the graphs are the plainest with a known answer: two independent branches of matrix products,
which a split runs almost twice as fast, and a chain, which no placement can speed up. Every run is
a whole search with a log of its own. With `--neighbor` a process that takes one core every other
three seconds runs beside. In the end all that was placed is measured again, alone: for some minutes
all take turns with the original, in fresh processes each round. No placement should be
slower. Runs that are in the log directory already are not repeated.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import tf_placer
from benchmarks.harness.table_file import write_table
from benchmarks.models import language_model, resnet, small
from benchmarks.models.training_model import TrainingModel
from graph_passes.placement import read_placement
from tf_placer.confirmation.confirmation import survey
from tf_placer.confirmation.round_statistics import LEAST_ROUNDS
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.runs.run_directory import RunDirectory
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.table import table
from tf_placer.text.units import format_duration

__all__ = ["GRAPHS", "main", "neighbor", "summary_table"]

tf1 = tf.compat.v1

_MACHINE = "local:2"
_HEADERS = ["seed", "result", "speed-up", "95 % interval", "trials", "rounds", "time"]
_HEADERS += ["again", "single rounds"]
_BUSY = """
import time
while True:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    time.sleep(3)
"""


def _collect_training(model: TrainingModel) -> tuple[Any, ...]:
    return model.graph, model.train_op, next(model.feeds()), model.initializer


def _two_branches() -> tuple[Any, ...]:
    """Builds two chains of eight products of different data, whose sum is fetched."""
    size, sums = 700, []
    with tf.Graph().as_default() as graph:
        for branch in (1, 2):
            value = tf1.random_uniform([size, size], seed=branch)
            for number in range(8):
                # Random weights per product: equal branches would be merged into one.
                seed = 1000 * branch + number
                weights = tf1.random_uniform([size, size], -1.0, 1.0, seed=seed)
                value = tf.matmul(value, weights) / size
            sums.append(value)
        tf.reduce_sum(sums[0] + sums[1], name="y")
    return graph, "y:0"


def _chain() -> tuple[Any, ...]:
    """Builds one chain of twelve squares of a matrix, whose sum is fetched."""
    with tf.Graph().as_default() as graph:
        value = tf1.random_uniform([400, 400], seed=1)
        for _ in range(12):
            product = tf.matmul(value, value)
            # Neither too large nor too small, however long the chain is.
            value = product / tf.reduce_max(product)
        tf.reduce_sum(value, name="y")
    return graph, "y:0"


#: The placed graphs by name: graph, fetches, and feeds and initializers if it has any.
GRAPHS: Mapping[str, Callable[[], tuple[Any, ...]]] = {
    "language_model": lambda: _collect_training(language_model.build()),
    "translation": lambda: _collect_training(small.small_translation()),
    "resnet": lambda: _collect_training(
        resnet.build(50, batch=8, image_size=64, classes=10, width=0.5)
    ),
    "two_branches": _two_branches,
    "chain": _chain,
}


@contextlib.contextmanager
def neighbor(is_there: bool) -> Iterator[None]:
    """Runs a process beside that takes one core every other three seconds."""
    child = subprocess.Popen([sys.executable, "-c", _BUSY]) if is_there else None
    try:
        yield
    finally:
        if child is not None:
            child.kill()
            child.wait()


def _search(directory: pathlib.Path, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Searches once, or reads what came of it earlier."""
    done = directory / "verdict.json"
    if done.exists():
        value: dict[str, Any] = read_json(done)
        return value
    start_secs = time.monotonic()
    with neighbor(args.neighbor):
        result = tf_placer.optimize(
            *GRAPHS[args.graph](),
            machine=_MACHINE,
            max_trials=args.max_trials,
            max_secs=args.max_secs,
            log_dir=directory,
            seed=seed,
        )
    value = {
        "seed": seed,
        "changed": result.changed,
        "speedup": result.speedup,
        "interval": result.speedup_interval,
        "trials": len(result.trials),
        "rounds": len(result.confirmation.rounds) if result.confirmation else 0,
        "secs": round(time.monotonic() - start_secs, 1),
    }
    print(f"\n{result.table()}\n{result.reason}\n", flush=True)
    write_json(done, value)
    return value


def _measure_again(
    directories: Mapping[int, pathlib.Path], again_secs: float
) -> dict[int, list[float]]:
    """Measures placements and the original, side by side, for some time.

    Args:
        directories: of the searches that found them, by seed; all of one graph.
        again_secs: seconds to measure, at least; at least four rounds are measured.

    Returns:
        By seed the speed-ups of all rounds in which both ran.
    """
    run = RunDirectory(next(iter(directories.values())))
    step, machine = run.read_step(), run.read_machine()
    candidates: dict[str, Mapping[str, str]] = {ORIGINAL: {}}
    for seed, directory in directories.items():
        candidates[str(seed)] = read_placement(RunDirectory(directory).placement).assignment
    speedups: dict[int, list[float]] = {seed: [] for seed in directories}
    start_secs, rounds = time.monotonic(), 0
    with SessionEnvironment(
        run.graph, step, machine, lambda row: {}, meta_optimizer=True
    ) as environment:
        while rounds < LEAST_ROUNDS or time.monotonic() - start_secs < again_secs:
            found = survey(environment, candidates, ORIGINAL, rounds=1, seed=rounds)
            rounds += 1
            for seed, values in speedups.items():
                speedup = found.comparisons[str(seed)].speedup
                values += [] if speedup is None else [speedup]
            print(f"again: {rounds} rounds, {time.monotonic() - start_secs:.0f} s", flush=True)
    return speedups


def summary_table(values: Sequence[Mapping[str, Any]], again: Mapping[int, Sequence[float]]) -> str:
    """Formats what came of the runs, a line each.

    Args:
        values: of the runs, in JSON.
        again: by seed the speed-ups of single rounds that measured it again.
    """
    rows = []
    for value in values:
        low, high = value["interval"] or (None, None)
        rounds = again.get(value["seed"])
        rows.append(
            [
                value["seed"],
                "placed" if value["changed"] else "unchanged",
                "" if value["speedup"] is None else f"{value['speedup']:.3f}x",
                "" if low is None else f"{low:.3f} to {high:.3f}",
                value["trials"],
                value["rounds"],
                format_duration(value["secs"]),
                f"{statistics.geometric_mean(rounds):.3f}x" if rounds else "",
                f"{min(rounds):.3f} to {max(rounds):.3f}" if rounds else "",
            ]
        )
    return table(_HEADERS, rows, "rlrlrrrrl")


def main() -> None:
    """Runs the searches and writes what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graph", choices=GRAPHS, default="language_model")
    parser.add_argument("--runs", type=int, default=10, help="default 10")
    parser.add_argument("--neighbor", action="store_true", help="disturb the searches")
    parser.add_argument("--max_trials", type=int, default=150, help="default 150")
    parser.add_argument("--max_secs", type=float, default=180.0, help="default 180")
    parser.add_argument(
        "--again_secs",
        type=float,
        default=0.0,
        help="seconds to measure all that was placed again; 0: not at all (default 0)",
    )
    parser.add_argument("--log_dir", default="runs/live_verdicts")
    parser.add_argument("--out_dir", default="benchmarks/results/live_verdicts")
    args = parser.parse_args()
    name = f"{args.graph}_{'disturbed' if args.neighbor else 'quiet'}"
    values, placed = [], {}
    for seed in range(args.runs):
        directory = pathlib.Path(args.log_dir, name, str(seed))
        values.append(_search(directory, seed, args))
        if values[-1]["changed"]:
            placed[seed] = directory
        print(summary_table(values, {}), flush=True)
    again = _measure_again(placed, args.again_secs) if placed and args.again_secs else {}
    text = f"{name} on {_MACHINE}: {len(placed)} of {len(values)} placed\n\n"
    write_table(text + summary_table(values, again), pathlib.Path(args.out_dir, f"{name}.txt"))


if __name__ == "__main__":
    main()
