"""How many live trials a minute has, beside another checkout of tf_placer.

Random placements of two graphs are measured for a while, by both checkouts in turn, each in
processes of its own. Starting is not counted, and neither is the confirmation.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from tf_placer.text.table import table

__all__ = ["main"]

# Runs in either checkout, so it uses only what both have.
_SEARCH = """
import os, sys, json
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tf_placer
from benchmarks.models import language_model
from benchmarks.models import branches
name, directory, max_secs = sys.argv[1], sys.argv[2], float(sys.argv[3])
if name == "language_model":
    model = language_model.build()
    given = (model.graph, model.train_op, {model.tokens: next(model.batches(0))}, model.initializer)
else:
    model = branches.build(branches=1, layers=1, units=512, batch=128)
    given = (model.graph, model.train_op, next(model.feeds()), model.initializer)
operations = len(given[0].get_operations())
tf_placer.optimize(*given, machine="local:2", placer="random", max_secs=max_secs,
                   max_trials=100000, log_dir=directory)
trials = [json.loads(line) for line in open(directory + "/trials.jsonl").read().splitlines()[1:]]
measured = [t for t in trials if t["repeats"] is None]
secs = measured[-1]["elapsed_secs"] - measured[0]["elapsed_secs"]
steps = sum(sum(t["step_secs"] or ()) + sum(t.get("reference_secs") or ()) for t in measured[1:])
count = len(measured) - 1
print(json.dumps({"operations": operations, "trials": count, "secs": secs, "step_secs": steps}))
"""


def _measured(checkout: str, graph: str, max_secs: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        output = subprocess.run(
            [sys.executable, "-c", _SEARCH, graph, directory, str(max_secs)],
            env={**os.environ, "PYTHONPATH": checkout},
            cwd=directory,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout
    value: dict[str, Any] = json.loads(output.splitlines()[-1])
    return value


def main() -> None:
    """Measures and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--against", required=True, help="directory of the other checkout")
    parser.add_argument("--repeats", type=int, default=2, help="of each search (default 2)")
    parser.add_argument("--max_secs", type=float, default=150.0, help="of each (default 150)")
    args = parser.parse_args()
    here = str(pathlib.Path(__file__).resolve().parents[2])
    checkouts = {"this": here, "other": str(pathlib.Path(args.against).resolve())}
    rows = []
    for graph in ("language_model", "one_layer"):
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in checkouts}
        for _ in range(args.repeats):
            for name, checkout in checkouts.items():
                found[name].append(_measured(checkout, graph, args.max_secs))
        for name, values in found.items():
            per_minute = statistics.fmean(60.0 * v["trials"] / v["secs"] for v in values)
            beside = statistics.fmean((v["secs"] - v["step_secs"]) / v["trials"] for v in values)
            rows.append(
                [
                    graph,
                    str(values[0]["operations"]),
                    name,
                    f"{per_minute:.1f}",
                    f"{statistics.fmean(v['step_secs'] / v['trials'] for v in values):.2f} s",
                    f"{beside:.2f} s",
                ]
            )
    headers = ["graph", "operations", "checkout", "trials/min", "steps of a trial", "all else"]
    print(table(headers, rows, "lrlrrr"))


if __name__ == "__main__":
    main()
