"""What `optimize` finds live, against the graph as it came, one device and the split by layer.

Four training graphs on `local:2`, each with at most 40 trials and 5 minutes, the confirmation
included: a language model and a translation model, two branches that share nothing, and a
convolutional network, which is nearly a chain. What was found is then measured side by side with
all that it is compared with, in several rounds of fresh processes. Graphs that are done are not
searched again.
"""

from __future__ import annotations

import argparse
import csv
import functools
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

import tf_placer
from benchmarks.harness.pictures import save_picture
from benchmarks.harness.provenance import provenance
from benchmarks.models import branches, language_model, resnet, small
from benchmarks.models.training_model import TrainingModel
from graph_passes.op_graph import OpGraph
from graph_passes.pipeline import group_operations
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.live.confirmation import Confirmation, survey
from tf_placer.live.result import OptimizeResult
from tf_placer.live.round_statistics import LEAST_ROUNDS
from tf_placer.live.run_directory import RunDirectory
from tf_placer.placers import granularity_of
from tf_placer.search.trial_log import ORIGINAL
from tf_placer.text.markdown import markdown_table
from tf_placer.text.units import format_duration, format_step

__all__ = ["GRAPHS", "main", "measure_again", "summary"]

#: What is placed, by name, and how it is built.
GRAPHS: Mapping[str, Callable[[], TrainingModel]] = {
    "language_model": language_model.build,
    "two_branches": branches.build,
    "translation": small.small_translation,
    "resnet": lambda: resnet.build(50, batch=8, image_size=64, classes=10, width=0.5),
}
_AGAINST = (ORIGINAL, "single_device", "expert")


def measure_again(result: OptimizeResult, rounds: int, seed: int = 0) -> Confirmation:
    """Measures what was found side by side with the graph as it came and the best baselines.

    Args:
        result: of an optimisation that has found something.
        rounds: of fresh processes.
        seed: of the order.

    Returns:
        What was measured; the reference is what was found.
    """
    assert result.winner is not None and result.log_dir is not None
    directory = RunDirectory(result.log_dir)
    request, _ = directory.read_request()
    # The graph in memory has the devices by now.
    graph_def = tf.compat.v1.GraphDef.FromString(directory.graph.read_bytes())
    op_graph = OpGraph.from_graph_def(graph_def, request.step.fetches, request.step.feeds)
    grouped = group_operations(op_graph, granularity_of(request.placer, request.placer_options))
    devices = tuple(device.name for device in request.machine.devices)

    def assign(row: np.ndarray) -> dict[str, str]:
        return grouped.assignment(row, devices)

    candidates: dict[str, Mapping[str, str]] = {}
    for label in dict.fromkeys([result.winner, *_AGAINST]):
        if label in result.finalists:
            row = result.finalists[label].assignment
            candidates[label] = {} if row is None else assign(np.array(row, np.int32))
    with SessionEnvironment(
        directory.graph,
        request.step,
        request.machine,
        assign,
        meta_optimizer=True,
        work_dir=directory.path,
    ) as environment:
        return survey(
            environment,
            candidates,
            result.winner,
            rounds=rounds,
            report=functools.partial(print, "again:", flush=True),
            seed=seed,
        )


def summary(
    name: str, result: OptimizeResult, secs: float, again: Confirmation | None = None
) -> dict[str, Any]:
    """Sums up what came of a graph, as JSON values.

    Args:
        name: of the graph.
        result: of its optimisation.
        secs: what that took.
        again: what `measure_again` has measured; None where nothing was found.
    """
    found = result.winner or ORIGINAL
    against: dict[str, Any] = {}
    for label in _AGAINST:
        if again is None or label not in again.comparisons:
            continue
        # It compares with what was found: the other way round.
        comparison = again.comparisons[label]
        low, high = comparison.interval or (None, None)
        against[label] = {
            "step_secs": again.step_secs(label),
            "speedup": comparison.speedup and 1 / comparison.speedup,
            "interval": low and high and (1 / high, 1 / low),
        }
    measured = again or result.confirmation
    return {
        "graph": name,
        "trials": len(result.trials),
        "secs": round(secs, 1),
        "changed": result.changed,
        "found": found,
        "found_secs": measured.step_secs(found) if measured else None,
        "rounds": len(measured.rounds) if measured else 0,
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
    print(f"\n{name}\n{result.table()}\n\n{result.explanation_table()}\n\n{result.reason}\n")
    searched = directory / "searched.json"
    if not searched.exists():
        # If what follows is broken off, the next call finds the search ended.
        write_json(searched, {"secs": time.monotonic() - start_secs})
    again = measure_again(result, args.rounds, args.seed) if result.winner else None
    value = summary(name, result, read_json(searched)["secs"], again)
    write_json(done, value | {"made_by": provenance()})
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
    made_by = provenance()
    return f"""\
# `auto`, live

What `optimize` with its default placer finds on `{args.machine}` with at most
{args.max_trials} trials and {args.max_secs:g} s per graph, the confirmation included. "found" is
the placer that proposed what was found, or that the graph stays as it came. What was found was
then measured again, side by side with the others, in {args.rounds} rounds of fresh processes. The
last columns are speed-ups with 95 % intervals of what was found over the graph as it came, over
everything on the better device, and over the best split by layer; "-": it is what was found, it did
not run, or nothing was found.

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
            known = [value[column] for column in columns]
            if not value["against"]:
                writer.writerow([*known, *[None] * 5])
            for label, against in value["against"].items():
                low, high = against["interval"] or (None, None)
                row = [label, against["step_secs"], against["speedup"], low, high]
                writer.writerow([*known, *row])


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
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    save_picture(figure, path, dpi=120)
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
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="of measuring what was found again, beside that (default 8)",
    )
    parser.add_argument("--machine", default="local:2", help="where to place (default local:2)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    parser.add_argument("--log_dir", default="runs/auto_live", help="where searches are kept")
    parser.add_argument("--out_dir", default="benchmarks/results/auto_live")
    args = parser.parse_args(argv)
    if args.rounds < LEAST_ROUNDS:
        # Fewer have no interval.
        parser.error(f"--rounds must be at least {LEAST_ROUNDS}, not {args.rounds}")
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    summaries: list[dict[str, Any]] = []
    for number, name in enumerate(args.graphs):
        eta = format_duration((len(args.graphs) - number) * args.max_secs)
        left = f"at most {eta} of searching left"
        print(f"graph {number + 1}/{len(args.graphs)}: {name}, {left}", flush=True)
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
