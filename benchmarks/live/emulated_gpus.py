"""Searches live on emulated GPUs for models of the papers at full size.

Steps are those of the confirmation, which runs the graph under the user's configuration, Grappler
included; beside each stands what the simulator says of it without Grappler. One GPU is where
TensorFlow puts a graph that names no device. Steps on emulated GPUs compute no values, so nothing
is said about these. A search that is done is not made again.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics

import numpy as np

import tf_placer
from benchmarks.harness.provenance import provenance
from benchmarks.models.catalog import MODELS, build_model
from graph_passes.placement import Placement
from tf_placer.costs.costed_graph import CostedGraph, cost_graph
from tf_placer.environments.environment import FailureKind
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_duration, format_step

__all__ = ["main"]

_HEADERS = ["model", "one GPU", "simulated", "found", "simulated", "speed-up", "promised"]
_HEADERS += ["trials", "search", "verdict"]


def _row(model: str, args: argparse.Namespace) -> list[str]:
    built = build_model(model, small=args.small)
    feeds = next(built.feeds())
    # The graph gets the devices that are found.
    workload = read_workload(built.graph, [built.train_op], feeds, built.initializer)
    costed = cost_graph(workload, find_machine(args.machine), steps=0)
    result = tf_placer.optimize(
        built.graph,
        [built.train_op],
        feeds,
        built.initializer,
        machine=args.machine,
        max_secs=args.max_secs,
        log_dir=pathlib.Path(args.log_dir, model),
    )
    one_gpu_secs, one_gpu_text = _simulate(costed, None)
    found_text = promised = speedup = ""
    if result.placement is not None:
        found_secs, found_text = _simulate(costed, result.placement)
        promised = f"{one_gpu_secs / found_secs:.2f}x"
    if result.speedup_interval is not None:
        low, high = result.speedup_interval
        speedup = f"{result.speedup:.2f}x ({low:.2f} to {high:.2f})"
    return [
        model,
        _one_gpu(result),
        one_gpu_text,
        _format_confirmation(result, result.winner),
        found_text,
        speedup,
        promised,
        str(len(result.trials)),
        format_duration(result.trials[-1].elapsed_secs),
        result.reason,
    ]


def _simulate(costed: CostedGraph, placement: Placement | None) -> tuple[float, str]:
    """Simulates a step; returns its seconds and the text for it."""
    problem, row = costed.build_placed_problem(placement)
    batch = Simulator(problem).simulate(row[np.newaxis])
    secs = float(batch.step_secs[0])
    return secs, format_step(secs) + ("" if batch.feasible[0] else ", does not fit")


def _format_confirmation(result: tf_placer.OptimizeResult, label: str | None) -> str:
    """Formats the median step of the original or of the winner in the confirmation."""
    rounds = result.confirmation.rounds if result.confirmation else ()
    measured = [each[label] for each in rounds if label is not None and label in each]
    secs = [step for each in measured for step in each.step_secs or ()]
    if secs:
        return format_step(statistics.median(secs))
    failures = [each.failure.kind.value for each in measured if each.failure]
    return failures[0].replace("_", " ") if failures else ""


def _one_gpu(result: tf_placer.OptimizeResult) -> str:
    """Formats the step of the original, and of one device alone where the original failed."""
    text = _format_confirmation(result, "original")
    # The memory of a step varies with the order of operations: the same devices may have run it.
    ran = [
        trial.measurement.median_secs
        for trial in result.trials
        if trial.placer == "single_device" and trial.measurement.median_secs is not None
    ]
    has_failed = text == FailureKind.OUT_OF_MEMORY.value.replace("_", " ")
    return f"{text}; {format_step(min(ran))} in the search" if has_failed and ran else text


def main() -> None:
    """Searches, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="rnnlm_2,nmt_2", help="by comma (default two)")
    parser.add_argument("--machine", default="emulated:4xK80", help="default emulated:4xK80")
    parser.add_argument("--max_secs", type=float, default=300.0, help="of a search (default 300)")
    parser.add_argument("--small", action="store_true", help="the models' small sizes")
    parser.add_argument("--log_dir", default="runs/emulated_live")
    parser.add_argument("--out_dir", default="benchmarks/results/emulated_live")
    args = parser.parse_args()
    models = args.models.split(",")
    if unknown := set(models) - MODELS.keys():
        parser.error(f"unknown models: {', '.join(sorted(unknown))}")
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    rows = []
    for model in models:
        rows.append(_row(model, args))
        text = table(_HEADERS, rows, "l" + "r" * (len(_HEADERS) - 2) + "l")
        made_by = provenance()
        (out / "table.txt").write_text(
            f"{text}\n\nmachine: {args.machine}\ncommand: {made_by['command']}\n"
            f"computer: {made_by['processor']}, {made_by['cores']} cores\n"
        )
        print(text, flush=True)


if __name__ == "__main__":
    main()
