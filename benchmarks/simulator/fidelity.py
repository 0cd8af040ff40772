"""Simulated against live step times, over many placements of training graphs on `local:2`.

Each graph is profiled once and the links are calibrated once. Then random and structured placements
are simulated, and measured live in several rounds of fresh processes. In a round every placement
takes turns with the graph as it came, which is everything on the first device: so a slow phase of
the machine is not taken for a slow placement. The live figure of a placement is relative, the
median over the rounds of how many times as long as that graph it takes; in seconds it is that,
times the median step of that graph over all rounds.

So the errors are those of relative times, too: simulated / simulated graph as it came against live
/ live. They are what a search goes by, and what can be measured precisely where the speed of the
machine changes; the error of the one graph that all are compared with is in all of them. What is
too slow or too fast for all placements alike is in "absolute error", the median of that of seconds,
and in "simulated / live", the median of the ratio of seconds; both hang on how fast the machine was
when the graph was profiled. Two live rounds do not agree with each other either: how well they do
is in the table, and "at best", the rank correlation that a simulator without error would show for
it.

Writes the placements with both times, a table and a scatter plot. A run that was stopped goes on
where it was: problems, placements and measurements are in `--log_dir`.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import json
import math
import os
import pathlib
import platform
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from benchmarks.harness.pictures import save_picture
from benchmarks.harness.statistics import spearman
from benchmarks.models import inception_v3, small
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.pipeline import group_operations
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.paired import PairedEnvironment, PairedProtocol
from tf_placer.environments.paired_steps import log_speedup
from tf_placer.environments.session import MeasuringProtocol, SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.inputs.sources import Source, read_source
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["Comparison", "kept_placements", "main", "measure_live"]

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
# Two steps warm a session up; how many count is said elsewhere.
_PROTOCOL = MeasuringProtocol(steps=3, dropped=2)


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Live and simulated steps of the placements of one graph.

    Attributes:
        kinds: where each placement is from.
        log_ratios: float64 [num_placements, num_rounds], the logarithm of how many times as long
            as the graph as it came each placement took in each round.
        original_secs: the live step of the graph as it came.
        simulated_secs: float64 [num_placements].
        simulated_original_secs: the simulated step of the graph as it came.
    """

    kinds: list[str]
    log_ratios: np.ndarray
    original_secs: float
    simulated_secs: np.ndarray
    simulated_original_secs: float

    @property
    def live_ratios(self) -> np.ndarray:
        """float64 [num_placements], live steps by that of the graph as it came."""
        return _median_ratios(self.log_ratios)

    @property
    def live_secs(self) -> np.ndarray:
        """float64 [num_placements], live steps."""
        return self.live_ratios * self.original_secs

    @property
    def simulated_ratios(self) -> np.ndarray:
        """float64 [num_placements], simulated steps by that of the graph as it came."""
        return self.simulated_secs / self.simulated_original_secs

    def row(self, name: str) -> list[str]:
        """Formats the line of the table."""
        live_secs = self.live_secs
        errors = np.abs(self.simulated_ratios / self.live_ratios - 1)
        odd = _median_ratios(self.log_ratios[:, ::2])
        even = _median_ratios(self.log_ratios[:, 1::2]) if self.log_ratios.shape[1] > 1 else odd
        agreement = spearman(odd, even)
        # All rounds together are as reliable as two halves that agree so well (Spearman and Brown).
        at_best = math.sqrt(max(2 * agreement / (1 + agreement), 0.0)) if agreement > -1 else 0.0
        return [
            name,
            str(len(live_secs)),
            f"{format_step(live_secs.min())} to {format_step(live_secs.max())}",
            f"{spearman(self.simulated_ratios, self.live_ratios):.3f}",
            f"{at_best:.3f}",
            f"{np.median(errors):.1%}",
            f"{np.percentile(errors, 90):.1%}",
            f"{np.median(np.abs(self.simulated_secs / live_secs - 1)):.1%}",
            f"{np.median(self.simulated_secs / live_secs):.3f}",
            f"{agreement:.3f}",
            f"{np.median(np.abs(odd / even - 1)):.1%}",
        ]


_HEADERS = ["graph", "placements", "live step", "rank correlation", "at best"]
_HEADERS += ["median error", "90 % below", "absolute error", "simulated / live"]
_HEADERS += ["live rounds: correlation", "difference"]


def _median_ratios(log_ratios: np.ndarray) -> np.ndarray:
    ratios: np.ndarray = np.exp(np.median(log_ratios, axis=1))
    return ratios


def _placements(
    groups: GroupGraph, legal: np.ndarray, problem: PlacementProblem, count: int
) -> list[tuple[str, np.ndarray]]:
    """Lists single devices, splits, taking turns, searched and random ones, and those between."""
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


def kept_placements(
    path: pathlib.Path, count: int, make: Callable[[], list[tuple[str, np.ndarray]]]
) -> list[tuple[str, np.ndarray]]:
    """Makes placements and keeps them, or reads those of the run that this one goes on with.

    Some come of a search, so another version of the simulator would make others.

    Args:
        path: of the file.
        count: how many are wanted.
        make: makes that many, where each is from and the device of each group.

    Raises:
        ValueError: the file has another number of placements.
    """
    if not path.exists():
        write_json(path, [[kind, row.tolist()] for kind, row in make()])
    kept = [(kind, np.array(row, np.int32)) for kind, row in read_json(path)]
    if len(kept) != count:
        raise ValueError(f"{path} has {len(kept)} placements, not {count}: name another --log_dir")
    return kept


def _searched(
    simulator: Simulator, start: np.ndarray, legal: np.ndarray, sign: int
) -> list[np.ndarray]:
    """Lists what hill climbing in the simulator passes through, to fast (1) or slow (-1) steps."""
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
    """Profiles the graph for its problem, or reads that of the run that this one goes on with."""
    if not path.exists():
        write_problem(cost_graph(source, find_machine(machine), steps=10).problem(), path)
    return read_problem(path)


def measure_live(
    name: str,
    sessions: SessionEnvironment,
    assign: Callable[[np.ndarray], Mapping[str, str]],
    placements: Sequence[tuple[str, np.ndarray]],
    log: pathlib.Path,
    *,
    rounds: int,
    blocks: int,
) -> tuple[np.ndarray, float]:
    """Measures placements in turns with the graph as it came, in fresh processes for each round.

    Args:
        name: of the graph.
        sessions: runs the steps.
        assign: turns a placement into device names by operation name.
        placements: where each is from, and the device of each group.
        log: what was measured with as many blocks, here or in an earlier run; it is gone on with.
        rounds: how many.
        blocks: how often a placement and the graph as it came take turns in each.

    Returns:
        The logarithm of how many times as long as the graph as it came each placement took,
        float64 [num_placements, rounds]; and the step of that graph in seconds, the median of all.

    Raises:
        RuntimeError: a placement does not run beside the graph as it came.
    """
    log_ratios, original_secs = np.full((2, len(placements), rounds), np.nan)
    if log.exists():
        for line in log.read_text().splitlines():
            entry = json.loads(line)
            k, number = entry["placement"], entry["round"]
            if entry["blocks"] == blocks and number < rounds and k < len(placements):
                log_ratios[k, number] = entry["log_ratio"]
                original_secs[k, number] = entry["original_secs"]
    # Nothing is left early: here the slow placements are worth as much as the fast ones.
    protocol = PairedProtocol(hopeless_ratio=math.inf, worse_ratio=math.inf, most_blocks=blocks)
    with open(log, "a") as file:
        for number in range(rounds):
            missing = np.flatnonzero(np.isnan(log_ratios[:, number])).tolist()
            if not missing:
                continue
            sessions.restart()
            paired = PairedEnvironment(sessions, assign, protocol=protocol)
            original = paired.measure_original()
            if original.failure is not None:
                raise RuntimeError(f"{name}, the graph as it came: {original.failure}")
            for k in missing:
                kind, row = placements[k]
                [measurement] = paired.measure(row[None])
                if measurement.step_secs is None or measurement.reference_secs is None:
                    reason = measurement.failure or "it runs only without the graph as it came"
                    raise RuntimeError(f"{name}, placement {k}: {reason}")
                # How many times as fast the graph as it came is.
                log_ratio, _ = log_speedup(measurement.step_secs, measurement.reference_secs)
                log_ratios[k, number] = log_ratio
                original_secs[k, number] = statistics.median(measurement.reference_secs)
                entry = {
                    "placement": k,
                    "round": number,
                    "blocks": blocks,
                    "log_ratio": log_ratio,
                    "original_secs": original_secs[k, number],
                }
                file.write(json.dumps(entry) + "\n")
                file.flush()
                print(
                    f"{name}: round {number + 1}/{rounds}, placement {k + 1}/{len(placements)} "
                    f"({kind}): {math.exp(log_ratio):.3f} times the step of the graph "
                    f"as it came, {format_step(original_secs[k, number])}",
                    flush=True,
                )
    return log_ratios, float(np.median(original_secs))


def _compare(name: str, args: argparse.Namespace) -> Comparison:
    model = _MODELS[name]()
    source = read_source(model.graph, [model.train_op], next(model.feeds()))
    directory = pathlib.Path(args.log_dir, name)
    directory.mkdir(parents=True, exist_ok=True)
    problem = _problem(source, directory / "problem.json", args.machine)
    grouped = group_operations(source.op_graph)
    machine = find_machine(args.machine)
    devices = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    placements = kept_placements(
        directory / "placements.json",
        args.placements,
        lambda: _placements(grouped.group_graph, legal, problem, args.placements),
    )

    def assign(row: np.ndarray) -> dict[str, str]:
        return grouped.assignment(row, devices)

    with tempfile.TemporaryDirectory() as work_dir:
        graph_path = pathlib.Path(work_dir) / "graph.pb"
        graph_path.write_bytes(source.graph_def.SerializeToString())
        with SessionEnvironment(
            graph_path, source.step, machine, assign, protocol=_PROTOCOL
        ) as sessions:
            log_ratios, original_secs = measure_live(
                name,
                sessions,
                assign,
                placements,
                directory / "paired.jsonl",
                rounds=args.rounds,
                blocks=args.blocks,
            )
    # As they come, the graphs name no device, and TensorFlow puts everything on the first.
    as_it_came = legal.argmax(axis=1)
    rows = np.array([as_it_came, *(row for _, row in placements)], np.int32)
    simulated_secs = Simulator(problem).simulate(rows).step_secs
    return Comparison(
        [kind for kind, _ in placements],
        log_ratios,
        original_secs,
        simulated_secs[1:],
        float(simulated_secs[0]),
    )


def _write(args: argparse.Namespace, comparisons: Mapping[str, Comparison]) -> str:
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "placements.csv", "w", newline="") as file:
        writer = csv.writer(file)
        columns = ["live_ratio", "simulated_ratio", "live_secs", "simulated_secs"]
        writer.writerow(["graph", "placement", "kind", *columns, "live_ratios"])
        for name, comparison in comparisons.items():
            for k, kind in enumerate(comparison.kinds):
                figures = [
                    comparison.live_ratios[k],
                    comparison.simulated_ratios[k],
                    comparison.live_secs[k],
                    comparison.simulated_secs[k],
                ]
                rounds = " ".join(f"{ratio:.4f}" for ratio in np.exp(comparison.log_ratios[k]))
                writer.writerow([name, k, kind, *(f"{figure:.6f}" for figure in figures), rounds])
    rows = [comparison.row(name) for name, comparison in comparisons.items()]
    text = table(_HEADERS, rows, "l" + "r" * (len(_HEADERS) - 1))
    note = (
        f"command: python -m benchmarks.simulator.fidelity --placements {args.placements} "
        f"--rounds {args.rounds} --blocks {args.blocks} --machine {args.machine}\n"
        f"versions: Python {platform.python_version()}, TensorFlow {tf.__version__}\n"
        f"machine: {os.cpu_count()} cores, {platform.machine()}\n\n"
        "live: median of the rounds; in each a placement took turns with the graph as it came.\n"
        "median error, 90 % below: of steps relative to the graph as it came.\n"
        "absolute error: the median of that of steps in seconds.\n"
    )
    (out / "table.txt").write_text(f"{note}\n{text}\n")
    _plot(out / "scatter.png", comparisons)
    return text


def _plot(path: pathlib.Path, comparisons: Mapping[str, Comparison]) -> None:
    """Draws steps relative to the graph as it came; says so without matplotlib."""
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
        live, simulated = comparison.live_ratios, comparison.simulated_ratios
        rounds = np.exp(comparison.log_ratios)
        # With one round they differ by rounding.
        below = np.maximum(live - rounds.min(axis=1), 0.0)
        above = np.maximum(rounds.max(axis=1) - live, 0.0)
        for color, kind in enumerate(dict.fromkeys(comparison.kinds)):
            chosen = np.array([other == kind for other in comparison.kinds])
            axes.errorbar(
                live[chosen],
                simulated[chosen],
                xerr=[below[chosen], above[chosen]],
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
        axes.set_xlabel("live step / graph as it came (bars: rounds)")
        axes.set_ylabel("simulated step / graph as it came")
        axes.set_title(f"{name}: rank correlation {spearman(simulated, live):.3f}")
        axes.legend(loc="upper left", fontsize="small")
    save_picture(figure, path, dpi=120)


def main() -> None:
    """Measures, simulates, and writes the table, the CSV and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=42, help="per graph (default 42)")
    parser.add_argument("--rounds", type=int, default=3, help="of fresh processes (default 3)")
    parser.add_argument(
        "--blocks",
        type=int,
        default=6,
        help="how often a placement takes turns with the graph as it came in a round (default 6)",
    )
    parser.add_argument("--machine", default="local:2")
    parser.add_argument(
        "--models", default=",".join(_MODELS), help="graphs, by comma (default: all three)"
    )
    parser.add_argument("--log_dir", default="runs/simulator_fidelity")
    parser.add_argument("--out_dir", default="benchmarks/results/simulator_fidelity")
    args = parser.parse_args()
    if min(args.placements, args.rounds, args.blocks) < 1:
        parser.error("--placements, --rounds and --blocks must be at least 1")
    names = args.models.split(",")
    for name in names:
        if name not in _MODELS:
            parser.error(f"no graph {name!r}; the graphs are: {', '.join(_MODELS)}")
    print(_write(args, {name: _compare(name, args) for name in names}))


if __name__ == "__main__":
    main()
