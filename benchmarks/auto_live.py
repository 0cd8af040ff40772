"""What `optimize` finds live, against the graph as it came, one device and the split by layer.

Four training graphs on `local:2`, each with at most 40 trials and 5 minutes, the confirmation
included: a language model and a translation model, two branches that share nothing, and a
convolutional network, which is nearly a chain. All that is compared is measured side
by side, in fresh processes. Graphs that are done are not searched again.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tf_placer
from benchmarks.markdown import markdown_table
from benchmarks.models import branches, language_model, resnet, small
from benchmarks.models.training_model import TrainingModel
from benchmarks.provenance import provenance
from tf_placer.confirmation import Comparison, compare
from tf_placer.json_file import read_json, write_json
from tf_placer.report.units import format_duration, format_step
from tf_placer.result import OptimizeResult
from tf_placer.trial_log import ORIGINAL

__all__ = ["GRAPHS", "main", "summary"]

#: What is placed, by name, and how it is built.
GRAPHS: Mapping[str, Callable[[], TrainingModel]] = {
    "language_model": language_model.build,
    "two_branches": branches.build,
    "translation": small.small_translation,
    "resnet": lambda: resnet.build(50, batch=8, image_size=64, classes=10, width=0.5),
}
_AGAINST = (ORIGINAL, "single_device", "expert")


def summary(name: str, result: OptimizeResult, secs: float) -> dict[str, Any]:
    """What came of a graph, as JSON values.

    Args:
        name: of the graph.
        result: of its optimisation.
        secs: what that took.
    """
    confirmation = result.confirmation
    found = result.winner or ORIGINAL
    against: dict[str, Any] = {}
    for label in _AGAINST:
        measured = confirmation is not None and any(label in r for r in confirmation.rounds)
        if confirmation is None or not measured or label == found:
            continue
        comparison: Comparison = compare(confirmation.rounds, found, label)
        against[label] = {
            "step_secs": confirmation.step_secs(label),
            "speedup": comparison.speedup,
            "interval": comparison.interval,
        }
    return {
        "graph": name,
        "trials": len(result.trials),
        "secs": round(secs, 1),
        "changed": result.changed,
        "found": found,
        "found_secs": confirmation.step_secs(found) if confirmation else None,
        "rounds": len(confirmation.rounds) if confirmation else 0,
        "against": against,
        "reason": result.reason,
    }


def _optimized(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Optimises a graph, or reads what came of it earlier."""
    directory = pathlib.Path(args.log_dir) / name
    done = directory / "summary.json"
    if done.exists():
        value: dict[str, Any] = read_json(done)
        return value
    model = GRAPHS[name]()
    start_secs = time.monotonic()
    result = tf_placer.optimize(
        model.graph,
        model.train_op,
        next(model.feeds(args.seed)),
        model.initializer,
        machine=args.machine,
        max_trials=args.max_trials,
        max_secs=args.max_secs,
        log_dir=directory,
        seed=args.seed,
    )
    value = summary(name, result, time.monotonic() - start_secs)
    print(f"\n{name}\n{result.table()}\n\n{result.explanation_table()}\n\n{result.reason}\n")
    write_json(done, value | {"made_by": provenance("benchmarks.auto_live")})
    (directory / "explanation.txt").write_text(
        f"{result.table()}\n\n{result.explanation_table()}\n"
    )
    return value


def _text(summaries: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> str:
    rows = []
    for value in summaries:
        row = [
            value["graph"],
            str(value["trials"]),
            format_duration(value["secs"]),
            value["found"] if value["changed"] else "as it came",
            format_step(value["found_secs"]) if value["found_secs"] else "-",
        ]
        rows.append([*row, *(_speedup(value["against"].get(label)) for label in _AGAINST)])
    headers = ["graph", "trials", "time", "found", "step"]
    headers += ["to original", "to single device", "to expert"]
    made_by = provenance("benchmarks.auto_live")
    return f"""\
# `auto`, live

What `optimize` with its default placer finds on `{args.machine}` with at most
{args.max_trials} trials and {args.max_secs:g} s per graph, the confirmation included. "found" is
the placer that proposed what was found, or that the graph stays as it came. The last columns are
speed-ups with 95 % intervals, round by round, of what was found over the graph as it came, over
everything on the better device, and over the best split by layer; "-": it is what was found, or
there was no time to measure it again.

{markdown_table(headers, rows, "lrrlrrrr")}

Made by `{made_by["command"]}` on {made_by["processor"]}, {made_by["cores"]} cores.
"""


def _speedup(against: Mapping[str, Any] | None) -> str:
    if against is None or against["speedup"] is None:
        return "-"
    low, high = against["interval"] or (float("nan"), float("nan"))
    return f"{against['speedup']:.3f}x ({low:.3f} to {high:.3f})"


def _write_csv(path: pathlib.Path, summaries: Sequence[Mapping[str, Any]]) -> None:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        columns = ["graph", "trials", "secs", "changed", "found", "found_secs", "rounds"]
        writer.writerow([*columns, "against", "step_secs", "speedup", "low", "high"])
        for value in summaries:
            for label, against in value["against"].items():
                low, high = against["interval"] or (None, None)
                writer.writerow(
                    [
                        *(value[column] for column in columns),
                        *(label, against["step_secs"], against["speedup"], low, high),
                    ]
                )


def _plot(path: pathlib.Path, summaries: Sequence[Mapping[str, Any]]) -> None:
    """Draws the speed-ups with their intervals; says so without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4), constrained_layout=True)
    for number, label in enumerate(_AGAINST):
        points = [
            (place + 0.2 * (number - 1), value["against"][label])
            for place, value in enumerate(summaries)
            if value["against"].get(label, {}).get("interval")
        ]
        if points:
            places = [place for place, _ in points]
            speedups = [against["speedup"] for _, against in points]
            errors = [
                [against["speedup"] - against["interval"][0] for _, against in points],
                [against["interval"][1] - against["speedup"] for _, against in points],
            ]
            axes.errorbar(places, speedups, errors, fmt="o", capsize=3, label=f"over {label}")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(summaries)), [value["graph"] for value in summaries])
    axes.set_ylabel("speed-up of what was found")
    if axes.has_data():
        axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    """Optimises the graphs and writes what came of it.

    Args:
        argv: the arguments; those of the process when None.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--graphs",
        nargs="+",
        choices=[*GRAPHS],
        default=[*GRAPHS],
        metavar="GRAPH",
        help=f"which, of {', '.join(GRAPHS)} (default: all)",
    )
    parser.add_argument("--max_trials", type=int, default=40, help="per graph (default 40)")
    parser.add_argument("--max_secs", type=float, default=285.0, help="per graph (default 285)")
    parser.add_argument("--machine", default="local:2", help="where to place (default local:2)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.add_argument("--log_dir", default="runs/auto_live", help="where searches are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/auto_live")
    args = parser.parse_args(argv)
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    summaries: list[dict[str, Any]] = []
    for number, name in enumerate(args.graphs):
        eta = format_duration((len(args.graphs) - number) * args.max_secs)
        print(f"graph {number + 1}/{len(args.graphs)}: {name}, ETA at most {eta}", flush=True)
        summaries.append(_optimized(name, args))
        explained = pathlib.Path(args.log_dir, name, "explanation.txt")
        (out / f"{name}.txt").write_text(explained.read_text())
        # After every graph, so that what is done is there.
        (out / "auto_live.md").write_text(_text(summaries, args))
        _write_csv(out / "auto_live.csv", summaries)
        _plot(out / "auto_live.png", summaries)
    print(_text(summaries, args))


if __name__ == "__main__":
    main()
