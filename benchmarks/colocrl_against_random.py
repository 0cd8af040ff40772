"""ColocRL alone against random search, live, at equal trials.

Both start from nothing, without the baselines that `optimize` measures first: how much does the
policy learn within a budget of live trials? The graph is the language model of the README on
`local:2`. Writes a CSV of every trial, a table and a picture of the best step time so far.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import platform
import statistics
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.models import language_model
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.environments.session import SessionEnvironment
from tf_placer.machine_lookup import find_machine
from tf_placer.placers import make_placer
from tf_placer.report.progress import progress_line
from tf_placer.report.table import table
from tf_placer.report.units import format_step
from tf_placer.search import Budget, search
from tf_placer.step import Step
from tf_placer.trial_log import ORIGINAL, Trial, TrialLog

__all__ = ["main"]

_PLACERS = ("random", "colocrl")


def _run(args: argparse.Namespace) -> dict[tuple[str, int], list[Trial]]:
    """The trials of every placer and seed; what is in the logs already is not measured again."""
    model = language_model.build()
    graph_def = model.graph.as_graph_def()
    step = Step((model.train_op,), {model.tokens: next(model.batches())}, (model.initializer,))
    grouped = group_operations(OpGraph.from_graph_def(graph_def, step.fetches, list(step.feeds)))
    machine = find_machine(args.machine)
    devices = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    trials = {}
    with tempfile.TemporaryDirectory() as work_dir:
        graph_path = pathlib.Path(work_dir) / "graph.pb"
        graph_path.write_bytes(graph_def.SerializeToString())
        with SessionEnvironment(
            graph_path, step, machine, lambda row: grouped.assignment(row, devices)
        ) as environment:
            # Placers take turns, so that a slow quarter of an hour does not fall on one of them.
            for seed in range(args.seeds):
                for name in _PLACERS:
                    placer = make_placer(name, grouped.group_graph, legal, seed=seed)
                    path = pathlib.Path(args.log_dir) / f"{name}_{seed}" / "trials.jsonl"
                    header = {"placer": name, "seed": seed, "machine": machine.to_json()}
                    with TrialLog.open(path, header) as log:
                        trials[name, seed] = search(
                            lambda: environment.measure_assignment({}),
                            environment,
                            [placer],
                            log,
                            Budget(args.trials + 1, 1e9),
                            report=lambda trial, progress: print(progress_line(trial, progress)),
                        )
    return trials


def _best_so_far(trials: list[Trial]) -> np.ndarray:
    """float64 [num_trials - 1], best median step seconds after each trial but the original's."""
    secs = [t.measurement.median_secs for t in trials if t.placer != ORIGINAL]
    return np.minimum.accumulate([np.inf if s is None else s for s in secs])


def _write(args: argparse.Namespace, trials: dict[tuple[str, int], list[Trial]]) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "trials.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["placer", "seed", "trial", "step_secs", "failure", "repeats"])
        for (name, seed), run in trials.items():
            for t in run:
                failure = t.measurement.failure.kind.value if t.measurement.failure else ""
                label = ORIGINAL if t.placer == ORIGINAL else name
                row = [label, seed, t.index, t.measurement.median_secs, failure, t.repeats]
                writer.writerow(row)
    rows = []
    for (name, seed), run in trials.items():
        original = run[0].measurement.median_secs or float("nan")
        best = _best_so_far(run)
        secs = [t.measurement.median_secs for t in run[1:] if t.measurement.median_secs]
        quarter = max(1, len(secs) // 4)
        rows.append(
            [
                name,
                str(seed),
                format_step(original),
                format_step(float(best[-1])),
                f"{original / best[-1]:.3f}x",
                str(int(best.argmin()) + 1),
                format_step(statistics.fmean(secs[:quarter])),
                format_step(statistics.fmean(secs[-quarter:])),
                str(sum(t.repeats is None for t in run[1:])),
            ]
        )
    headers = ["placer", "seed", "original", "best", "speed-up", "at trial"]
    headers += ["mean of first quarter", "of last quarter", "distinct"]
    text = table(headers, rows, "lrrrrrrrr")
    note = (
        f"command: python -m benchmarks.colocrl_against_random --trials {args.trials} "
        f"--seeds {args.seeds} --machine {args.machine}\n"
        f"versions: Python {platform.python_version()}, TensorFlow {tf.__version__}\n"
        f"machine: {os.cpu_count()} cores, {platform.machine()}\n"
    )
    (out / "table.txt").write_text(f"{note}\n{text}\n")
    _plot(out / "best_so_far.png", trials)
    return text


def _plot(path: pathlib.Path, trials: dict[tuple[str, int], list[Trial]]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), constrained_layout=True)
    for (name, seed), run in trials.items():
        curve = (run[0].measurement.median_secs or np.nan) / _best_so_far(run)
        axes.step(
            np.arange(1, len(curve) + 1),
            curve,
            where="post",
            color=f"C{_PLACERS.index(name)}",
            alpha=0.5 + 0.5 / (1 + seed),
            label=name if seed == 0 else None,
        )
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xlabel("live trials")
    axes.set_ylabel("original / best step time so far")
    axes.set_title("ColocRL alone against random search, one line per seed")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    """Runs the searches and writes the table, the CSV and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=60, help="per search (default 60)")
    parser.add_argument("--seeds", type=int, default=3, help="searches per placer (default 3)")
    parser.add_argument("--machine", default="local:2")
    parser.add_argument("--log_dir", default="runs/colocrl_against_random")
    parser.add_argument("--out_dir", default="benchmarks/results/colocrl_against_random")
    args = parser.parse_args()
    print(_write(args, _run(args)))


if __name__ == "__main__":
    main()
