"""Simulated against live step times, over many placements of training graphs on `local:2`.

Each graph is profiled once and the links are calibrated once. Then random and structured placements
are measured live, in turns and in several rounds, and simulated. What disturbs a step only makes it
longer, so the live time of a placement is that of its fastest round, which is a median over steps.
Writes the placements with both times, a table and a scatter plot. Live times of two rounds do not
agree with each other either: how well they do is in the table, as a limit of what can be seen here.

A run that was stopped goes on where it was: problems and measurements are in `--log_dir`.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import json
import os
import pathlib
import platform
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.models import inception_v3, small
from benchmarks.statistics import spearman
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.pipeline import group_operations
from tf_placer.costed_graph import cost_graph
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.machine_lookup import find_machine
from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.report.table import table
from tf_placer.report.units import format_step
from tf_placer.simulation.simulator import Simulator
from tf_placer.sources import Source, read_source

__all__ = ["main"]

_MODELS: Mapping[str, Callable[[], Any]] = {
    "language_model": small.small_language_model,
    # Wide and a small batch, so that the branches' work weighs against their tensors. Elsewhere
    # all placements take about the same time, and a rank correlation only tells how they were
    # disturbed.
    "inception": functools.partial(
        inception_v3.build, batch=4, image_size=107, classes=10, width=1.5, learning_rate=0.01
    ),
    "translation": small.small_translation,
}
_PROTOCOL = MeasuringProtocol(steps=9, dropped=2)


@dataclasses.dataclass(frozen=True, eq=False)
class _Comparison:
    """Live and simulated seconds of the placements of one graph.

    Attributes:
        kinds: where each placement is from.
        live_secs: float64 [num_placements, num_rounds], median step of each live measurement.
        simulated_secs: float64 [num_placements].
        bound_secs: lower bound of the simulated step.
    """

    kinds: list[str]
    live_secs: np.ndarray
    simulated_secs: np.ndarray

    @property
    def fastest_secs(self) -> np.ndarray:
        """float64 [num_placements], that of the fastest round."""
        fastest: np.ndarray = self.live_secs.min(axis=1)
        return fastest

    def row(self, name: str) -> list[str]:
        """The line of the table."""
        live = self.fastest_secs
        error = np.abs(self.simulated_secs - live) / live
        odd = self.live_secs[:, ::2].min(axis=1)
        even = self.live_secs[:, 1::2].min(axis=1) if self.live_secs.shape[1] > 1 else odd
        return [
            name,
            str(len(live)),
            f"{format_step(live.min())} to {format_step(live.max())}",
            f"{spearman(self.simulated_secs, live):.3f}",
            f"{np.median(error):.1%}",
            f"{np.percentile(error, 90):.1%}",
            f"{np.median(self.simulated_secs / live):.3f}",
            f"{spearman(odd, even):.3f}",
            f"{np.median(np.abs(odd - even) / even):.1%}",
        ]


_HEADERS = ["graph", "placements", "live step", "rank correlation", "median error"]
_HEADERS += ["90 % below", "simulated / live", "live rounds: correlation", "difference"]


def _placements(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, count: int
) -> list[tuple[str, np.ndarray]]:
    """Single devices, splits, taking turns, searched and random ones, and what lies between."""
    rows: list[tuple[str, np.ndarray]] = []
    for name in ("single_device", "expert"):
        placer = make_placer(name, groups, legal, seed=0)
        rows += [(name, row) for row in placer.propose(64)]
    layers = np.unique(groups.layers, return_inverse=True)[1]
    for order in (layers, layers // 2, np.arange(groups.num_groups), layers // 4):
        turns = (order % legal.shape[1]).astype(np.int32)
        allowed = legal[np.arange(len(turns)), turns]
        rows.append(("in turns", np.where(allowed, turns, legal.argmax(axis=1)).astype(np.int32)))
    for sign in (1, -1):
        found = _searched(Simulator(problem), rows[0][1], legal, sign)
        rows += [("searched", row) for row in found[-1 :: -max(1, len(found) // 4)][:4]]
    structured = [row for _, row in rows]
    uniform = make_placer("random", groups, legal, seed=0).propose(count)
    rows += [("random", row) for row in uniform[: (count - len(rows)) // 3]]
    random = np.random.default_rng(0)
    while len(rows) < count:
        base = structured[random.integers(len(structured))]
        redrawn = random.random(len(base)) < random.uniform(0.02, 0.6)
        rows.append(("partly random", np.where(redrawn, uniform[len(rows)], base).astype(np.int32)))
    return rows


def _searched(
    simulator: Simulator, start: np.ndarray, legal: np.ndarray, sign: int
) -> list[np.ndarray]:
    """What hill climbing in the simulator passes through, to fast (1) or slow (-1) steps."""
    random = np.random.default_rng(0)
    path = [start]
    best = sign * simulator.simulate(start[None]).step_secs[0]
    for _ in range(1000):
        redrawn = random.random((16, len(start))) < 3 / len(start)
        drawn = random.integers(legal.shape[1], size=redrawn.shape)
        drawn = np.where(legal[np.arange(len(start)), drawn], drawn, path[-1])
        rows = np.where(redrawn, drawn, path[-1]).astype(np.int32)
        secs = sign * simulator.simulate(rows).step_secs
        if secs.min() < best:
            best = secs.min()
            path.append(rows[secs.argmin()])
    return path


def _problem(source: Source, path: pathlib.Path, machine: str) -> PlacementProblem:
    """The problem of the graph: profiled now, or the one of the run that this one goes on with."""
    if not path.exists():
        write_problem(cost_graph(source, find_machine(machine), steps=10).problem(), path)
    return read_problem(path)


def _compare(name: str, args: argparse.Namespace) -> _Comparison:
    model = _MODELS[name]()
    source = read_source(model.graph, [model.train_op], next(model.feeds()))
    directory = pathlib.Path(args.log_dir, name)
    directory.mkdir(parents=True, exist_ok=True)
    problem = _problem(source, directory / "problem.json", args.machine)
    grouped = group_operations(source.op_graph)
    machine = find_machine(args.machine)
    devices = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    rows = _placements(grouped.group_graph, legal, problem, args.placements)
    log = directory / "measurements.jsonl"
    secs = np.full((len(rows), args.rounds), np.nan)
    if log.exists():
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            if entry["round"] < args.rounds and entry["placement"] < len(rows):
                secs[entry["placement"], entry["round"]] = entry["step_secs"]
    with tempfile.TemporaryDirectory() as work_dir, open(log, "a") as file:
        graph_path = pathlib.Path(work_dir) / "graph.pb"
        graph_path.write_bytes(source.graph_def.SerializeToString())
        with SessionEnvironment(
            graph_path,
            source.step,
            machine,
            lambda row: grouped.assignment(row, devices),
            protocol=_PROTOCOL,
        ) as environment:
            for number in range(args.rounds):
                for k, (kind, row) in enumerate(rows):
                    if not np.isnan(secs[k, number]):
                        continue
                    [measurement] = environment.measure(row[None])
                    if measurement.median_secs is None:
                        raise RuntimeError(f"{name}, placement {k}: {measurement.failure}")
                    secs[k, number] = measurement.median_secs
                    entry = {"placement": k, "round": number, "step_secs": secs[k, number]}
                    file.write(json.dumps(entry) + "\n")
                    file.flush()
                    print(
                        f"{name}: round {number + 1}/{args.rounds}, placement {k + 1}/{len(rows)} "
                        f"({kind}): {format_step(secs[k, number])}",
                        flush=True,
                    )
    simulated = Simulator(problem).simulate(np.array([row for _, row in rows], np.int32))
    return _Comparison([kind for kind, _ in rows], secs, simulated.step_secs)


def _write(args: argparse.Namespace, comparisons: dict[str, _Comparison]) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "placements.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["graph", "placement", "kind", "live_secs", "simulated_secs", "rounds"])
        for name, comparison in comparisons.items():
            for k, kind in enumerate(comparison.kinds):
                rounds = " ".join(f"{secs:.6f}" for secs in comparison.live_secs[k])
                live = comparison.fastest_secs[k]
                simulated = comparison.simulated_secs[k]
                writer.writerow([name, k, kind, f"{live:.6f}", f"{simulated:.6f}", rounds])
    rows = [comparison.row(name) for name, comparison in comparisons.items()]
    text = table(_HEADERS, rows, "lrrrrrrrr")
    note = (
        f"command: python -m benchmarks.simulator_fidelity --placements {args.placements} "
        f"--rounds {args.rounds} --machine {args.machine}\n"
        f"versions: Python {platform.python_version()}, TensorFlow {tf.__version__}\n"
        f"machine: {os.cpu_count()} cores, {platform.machine()}\n"
    )
    (out / "table.txt").write_text(f"{note}\n{text}\n")
    _plot(out / "scatter.png", comparisons)
    return text


def _plot(path: pathlib.Path, comparisons: dict[str, _Comparison]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no picture: pip install 'tf_placer[report]'")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(
        1, len(comparisons), figsize=(4.5 * len(comparisons), 4.5), constrained_layout=True
    )
    for axes, (name, comparison) in zip(np.atleast_1d(panels), comparisons.items(), strict=True):
        live, simulated = comparison.fastest_secs * 1e3, comparison.simulated_secs * 1e3
        for color, kind in enumerate(dict.fromkeys(comparison.kinds)):
            chosen = np.array([other == kind for other in comparison.kinds])
            high = comparison.live_secs[chosen].max(axis=1) * 1e3 - live[chosen]
            axes.errorbar(
                live[chosen],
                simulated[chosen],
                xerr=[np.zeros_like(high), high],
                fmt="o",
                color=f"C{color}",
                ecolor="lightgrey",
                markersize=4,
                label=kind,
            )
        limit = 1.05 * max(live.max(), simulated.max())
        axes.plot([0, limit], [0, limit], color="grey", linewidth=0.8)
        axes.fill_between([0, limit], [0, 0.85 * limit], [0, 1.15 * limit], color="0.95")
        axes.set_xlim(0, limit)
        axes.set_ylim(0, limit)
        axes.set_aspect("equal")
        axes.set_xlabel("live step, ms (fastest round, and up to the slowest)")
        axes.set_ylabel("simulated step, ms")
        axes.set_title(f"{name}: rank correlation {spearman(simulated, live):.3f}")
        axes.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=120)


def main() -> None:
    """Measures, simulates, and writes the table, the CSV and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=42, help="per graph (default 42)")
    parser.add_argument("--rounds", type=int, default=3, help="live measurements (default 3)")
    parser.add_argument("--machine", default="local:2")
    parser.add_argument(
        "--models", default=",".join(_MODELS), help="graphs, by comma (default: all three)"
    )
    parser.add_argument("--log_dir", default="runs/simulator_fidelity")
    parser.add_argument("--out_dir", default="benchmarks/results/simulator_fidelity")
    args = parser.parse_args()
    names = args.models.split(",")
    for name in names:
        if name not in _MODELS:
            parser.error(f"no graph {name!r}; the graphs are: {', '.join(_MODELS)}")
    print(_write(args, {name: _compare(name, args) for name in names}))


if __name__ == "__main__":
    main()
