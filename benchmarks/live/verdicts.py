"""Whether live searches end as they should: the same search many times, quiet and disturbed.

Every run is a whole search with a log of its own. With `--neighbour` a process that takes one core
every other three seconds runs beside. In the end all that was placed is measured again, alone:
for some minutes all take turns with the graph as it came, in fresh processes each round. No
placement should be slower. Runs that are in the log directory already are not repeated.
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
from collections.abc import Callable, Iterator, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.live.branches_and_chain import chain, two_branches
from benchmarks.models import language_model
from graph_passes.placement import read_placement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.live.confirmation import survey
from tf_placer.live.round_statistics import LEAST_ROUNDS
from tf_placer.live.run_directory import RunDirectory
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.table import table
from tf_placer.text.units import format_duration

__all__ = ["GRAPHS", "main", "neighbour", "summary_table"]


def _language_model(seed: int) -> tuple[tf.Graph, Any, Mapping[str, Any], Any]:
    model = language_model.build()
    return model.graph, model.train_op, {model.tokens: next(model.batches(seed))}, model.initializer


#: What is placed, by name: graph, fetches, feeds and initialisers.
GRAPHS: Mapping[str, Callable[[int], tuple[tf.Graph, Any, Mapping[str, Any], Any]]] = {
    "language_model": _language_model,
    "two_branches": lambda seed: (two_branches(700, 8), "y:0", {}, None),
    "chain": lambda seed: (chain(400, 12), "y:0", {}, None),
}
_BUSY = """
import time
while True:
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    time.sleep(3)
"""


@contextlib.contextmanager
def neighbour(is_there: bool) -> Iterator[None]:
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
    graph, fetches, feeds, initializers = GRAPHS[args.graph](seed)
    start_secs = time.monotonic()
    with neighbour(args.neighbour):
        result = tf_placer.optimize(
            *(graph, fetches, feeds, initializers),
            machine=args.machine,
            max_trials=args.max_trials,
            max_secs=args.max_secs,
            log_dir=directory,
            seed=seed,
        )
    value = {
        "seed": seed,
        "changed": result.changed,
        "winner": result.winner,
        "speedup": result.speedup,
        "interval": result.speedup_interval,
        "trials": len(result.trials),
        "rounds": len(result.confirmation.rounds) if result.confirmation else 0,
        "secs": round(time.monotonic() - start_secs, 1),
        "reason": result.reason,
    }
    print(f"\n{result.table()}\n{result.reason}\n", flush=True)
    write_json(done, value)
    return value


def _measured_again(
    directories: Mapping[str, pathlib.Path], again_secs: float
) -> dict[str, dict[str, Any]]:
    """Measures placements and the graph as it came, side by side, for some time.

    Args:
        directories: of the searches that found them, by label; all of one graph.
        again_secs: seconds to measure, at least; at least four rounds are measured.

    Returns:
        By label the geometric mean of the speed-ups of all rounds, the least and the most.
    """
    run = RunDirectory(next(iter(directories.values())))
    request, _ = run.read_request()
    candidates: dict[str, Mapping[str, str]] = {ORIGINAL: {}}
    for label, directory in directories.items():
        candidates[label] = read_placement(RunDirectory(directory).placement).assignment
    speedups: dict[str, list[float]] = {label: [] for label in directories}
    start_secs, seed = time.monotonic(), 0
    with SessionEnvironment(
        run.graph, request.step, request.machine, lambda row: {}, meta_optimizer=True
    ) as environment:
        while seed < LEAST_ROUNDS or time.monotonic() - start_secs < again_secs:
            found = survey(environment, candidates, ORIGINAL, rounds=1, seed=seed)
            seed += 1
            for label, comparison in found.comparisons.items():
                if comparison.speedup is not None:
                    speedups[label].append(comparison.speedup)
            print(f"again: {seed} rounds, {time.monotonic() - start_secs:.0f} s", flush=True)
    return {
        label: {
            "speedup": statistics.geometric_mean(values),
            "least": min(values),
            "most": max(values),
            "rounds": len(values),
        }
        for label, values in speedups.items()
        if values
    }


def summary_table(values: list[dict[str, Any]]) -> str:
    """Formats what came of the runs, a line each."""
    rows = []
    for value in values:
        low, high = value["interval"] or (None, None)
        again = value.get("again")
        rows.append(
            [
                str(value["seed"]),
                "placed" if value["changed"] else "unchanged",
                "" if value["speedup"] is None else f"{value['speedup']:.3f}x",
                "" if low is None else f"{low:.3f} to {high:.3f}",
                str(value["trials"]),
                str(value["rounds"]),
                format_duration(value["secs"]),
                "" if not again else f"{again['speedup']:.3f}x",
                "" if not again else f"{again['least']:.3f} to {again['most']:.3f}",
            ]
        )
    headers = ["seed", "result", "speed-up", "95 % interval", "trials", "rounds", "time"]
    return table([*headers, "again", "single rounds"], rows, "rlrlrrrrl")


def main() -> None:
    """Runs the searches and prints what came of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graph", choices=GRAPHS, default="language_model")
    parser.add_argument("--machine", default="local:2")
    parser.add_argument("--runs", type=int, default=10, help="default 10")
    parser.add_argument("--first_seed", type=int, default=0, help="default 0")
    parser.add_argument("--neighbour", action="store_true", help="disturb the searches")
    parser.add_argument("--max_trials", type=int, default=150, help="default 150")
    parser.add_argument("--max_secs", type=float, default=180.0, help="default 180")
    parser.add_argument(
        "--again_secs",
        type=float,
        default=0.0,
        help="seconds to measure all that was placed again; 0: not at all (default 0)",
    )
    parser.add_argument("--log_dir", default="runs/live_verdicts")
    parser.add_argument("--output", help="file for the table; by default it is only printed")
    args = parser.parse_args()
    name = f"{args.graph}_{'disturbed' if args.neighbour else 'quiet'}"
    values, placed = [], {}
    for seed in range(args.first_seed, args.first_seed + args.runs):
        directory = pathlib.Path(args.log_dir) / name / str(seed)
        values.append(_search(directory, seed, args))
        if values[-1]["changed"]:
            placed[str(seed)] = directory
        print(summary_table(values), flush=True)
    if placed and args.again_secs:
        again = _measured_again(placed, args.again_secs)
        values = [value | {"again": again.get(str(value["seed"]))} for value in values]
    made_by = provenance()
    text = (
        f"{name} on {args.machine}: {sum(v['changed'] for v in values)} of {len(values)} placed\n\n"
        f"{summary_table(values)}\n\ncommand: {made_by['command']}\n"
        f"commit {made_by['commit']}, {made_by['processor']}, {made_by['cores']} cores\n"
    )
    print(f"\n{text}")
    if args.output:
        pathlib.Path(args.output).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.output).write_text(text)


if __name__ == "__main__":
    main()
