"""A comparison of simulated and live step times of training graphs on `local:2`.

Each graph is profiled once and the links are calibrated once. Then random and structured placements
are simulated, and measured live in several rounds of fresh processes. In a round every placement
takes turns with the original, which is everything on the first device: so a slow phase of the
machine is not mistaken for a slow placement. The live figure of a placement is the median over the
rounds of its step time relative to the original; its step time in seconds is this ratio times the
median step of the original over all rounds.

The errors are therefore of relative times: simulated by simulated original against live by live
original. A search decides by relative times, and they can be measured precisely although the speed
of the machine changes; the error of the original affects all of them. Two live rounds differ, too:
the table has their agreement and, as "at best", the rank correlation that a simulator without
error would reach.

Writes the placements with both times, and a table. A later run resumes a stopped one:
problems, placements and measurements are in `--log_dir`.
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
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.statistics import spearman
from benchmarks.harness.table_file import write_table
from benchmarks.models import inception_v3, small
from graph_passes.grouping.group_graph import GroupGraph
from graph_passes.pipeline import group_operations
from tf_placer.costs.costed_graph import cost_graph
from tf_placer.environments.measuring_protocol import MeasuringProtocol
from tf_placer.environments.paired import PairedEnvironment, PairedProtocol
from tf_placer.environments.paired_steps import log_speedup
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.inputs.workload import read_workload
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import make_placer
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.simulation.simulator import Simulator
from tf_placer.text.table import table
from tf_placer.text.units import format_step

__all__ = ["Comparison", "main", "measure_live", "read_or_make_placements"]

_MACHINE = "local:2"
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
# Two steps warm a session up; how many count is said in the other protocol. Nothing is left early
# there: here the slow placements are worth as much as the fast ones.
_SESSION_PROTOCOL = MeasuringProtocol(steps=3, dropped=2)
_PAIRED_PROTOCOL = PairedProtocol(
    hopeless_ratio=math.inf, worse_ratio=math.inf, most_blocks=6, most_long_blocks=6
)
_HEADERS = ["graph", "placements", "live step", "rank correlation", "at best", "median error"]
_HEADERS += ["90 % below", "rounds agree"]
_NOTES = """
live: median of the rounds; in each a placement took turns with the original.
median error, 90 % below: of steps relative to the original.
rounds agree: rank correlation of the odd with the even rounds.
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Live and simulated steps of the placements of one graph.

    Attributes:
        kinds: where each placement is from.
        log_ratios: float64 [num_placements, num_rounds], the logarithm of how many times as long
            as the original each placement took in each round.
        original_secs: the live step of the original.
        simulated_secs: float64 [num_placements].
        simulated_original_secs: the simulated step of the original.
    """

    kinds: list[str]
    log_ratios: np.ndarray
    original_secs: float
    simulated_secs: np.ndarray
    simulated_original_secs: float

    @property
    def live_ratios(self) -> np.ndarray:
        """float64 [num_placements], live steps by that of the original."""
        return _median_ratios(self.log_ratios)

    @property
    def live_secs(self) -> np.ndarray:
        """float64 [num_placements], live steps."""
        return self.live_ratios * self.original_secs

    @property
    def simulated_ratios(self) -> np.ndarray:
        """float64 [num_placements], simulated steps by that of the original."""
        return self.simulated_secs / self.simulated_original_secs

    def row(self, name: str) -> list[str]:
        """Formats the line of the table."""
        live_secs = self.live_secs
        errors = np.abs(self.simulated_ratios / self.live_ratios - 1)
        odd, even = (_median_ratios(self.log_ratios[:, first::2]) for first in (0, 1))
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
            f"{agreement:.3f}",
        ]


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
        found = _climb(Simulator(problem), rows[0][1], legal, sign)
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


def read_or_make_placements(
    path: pathlib.Path, count: int, make: Callable[[], list[tuple[str, np.ndarray]]]
) -> list[tuple[str, np.ndarray]]:
    """Makes placements and keeps them, or reads those of the run that this one resumes.

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


def _climb(
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


def measure_live(
    name: str,
    sessions: SessionEnvironment,
    assign: Callable[[np.ndarray], Mapping[str, str]],
    placements: Sequence[tuple[str, np.ndarray]],
    log: pathlib.Path,
    rounds: int,
) -> tuple[np.ndarray, float]:
    """Measures placements in turns with the original, in fresh processes for each round.

    Args:
        name: of the graph.
        sessions: runs the steps.
        assign: turns a placement into device names by operation name.
        placements: where each is from, and the device of each group.
        log: what was measured, here or in an earlier run; it is resumed.
        rounds: how many.

    Returns:
        The logarithm of how many times as long as the original each placement took,
        float64 [num_placements, rounds]; and the step of that graph in seconds, the median of all.

    Raises:
        RuntimeError: a placement does not run beside the original.
    """
    log_ratios, original_secs = np.full((2, len(placements), rounds), np.nan)
    for line in log.read_text().splitlines() if log.exists() else ():
        entry = json.loads(line)
        if entry["round"] < rounds:
            where = entry["placement"], entry["round"]
            log_ratios[where], original_secs[where] = entry["log_ratio"], entry["original_secs"]
    for number in range(rounds):
        missing = np.flatnonzero(np.isnan(log_ratios[:, number])).tolist()
        if not missing:
            continue
        sessions.restart()
        paired = PairedEnvironment(sessions, assign, protocol=_PAIRED_PROTOCOL)
        if (failure := paired.measure_original().failure) is not None:
            raise RuntimeError(f"{name}, the original: {failure}")
        for k in missing:
            label = f"{name}, placement {k}"
            log_ratio, secs = _measure_pair(label, paired, placements[k][1])
            log_ratios[k, number], original_secs[k, number] = log_ratio, secs
            entry = {"placement": k, "round": number, "log_ratio": log_ratio, "original_secs": secs}
            with open(log, "a") as file:
                file.write(json.dumps(entry) + "\n")
            ratio = f"{math.exp(log_ratio):.3f} times the step of the original"
            print(f"{label}, round {number}: {ratio}, {format_step(secs)}", flush=True)
    return log_ratios, float(np.median(original_secs))


def _measure_pair(label: str, paired: PairedEnvironment, row: np.ndarray) -> tuple[float, float]:
    """Measures the logarithm of how many times as long a placement takes, and the other's step."""
    [measurement] = paired.measure(row[None])
    if measurement.step_secs is None or measurement.reference_secs is None:
        reason = measurement.failure or "it runs only without the original"
        raise RuntimeError(f"{label}: {reason}")
    # The speed of the original by that of the placement.
    log_ratio, _ = log_speedup(measurement.step_secs, measurement.reference_secs)
    return log_ratio, statistics.median(measurement.reference_secs)


def _compare(name: str, args: argparse.Namespace) -> Comparison:
    model = _MODELS[name]()
    workload = read_workload(model.graph, [model.train_op], next(model.feeds()))
    directory = pathlib.Path(args.log_dir, name)
    directory.mkdir(parents=True, exist_ok=True)
    machine = find_machine(_MACHINE)
    problem_file = directory / "problem.json"
    if not problem_file.exists():
        write_problem(cost_graph(workload, machine, steps=10).problem(), problem_file)
    problem = read_problem(problem_file)
    grouped = group_operations(workload.op_graph)
    devices = tuple(device.name for device in machine.devices)
    legal = grouped.grouping.legal_devices(grouped.colocation, devices)
    placements = read_or_make_placements(
        directory / "placements.json",
        args.placements,
        lambda: _placements(grouped.group_graph, legal, problem, args.placements),
    )

    def assign(row: np.ndarray) -> dict[str, str]:
        return grouped.assignment(row, devices)

    with tempfile.TemporaryDirectory() as work_dir:
        graph_path = pathlib.Path(work_dir) / "graph.pb"
        graph_path.write_bytes(workload.graph_def.SerializeToString())
        with SessionEnvironment(
            graph_path, workload.step, machine, assign, protocol=_SESSION_PROTOCOL
        ) as sessions:
            log = directory / "paired.jsonl"
            live = measure_live(name, sessions, assign, placements, log, args.rounds)
    # As they come, the graphs name no device, and TensorFlow puts everything on the first.
    as_it_came = legal.argmax(axis=1)
    rows = np.array([as_it_came, *(row for _, row in placements)], np.int32)
    simulated_secs = Simulator(problem).simulate(rows).step_secs
    kinds = [kind for kind, _ in placements]
    return Comparison(kinds, *live, simulated_secs[1:], float(simulated_secs[0]))


def _write_placements(path: pathlib.Path, comparisons: Mapping[str, Comparison]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = ["live_ratio", "simulated_ratio", "live_secs", "simulated_secs"]
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["graph", "placement", "kind", *columns, "live_ratios"])
        for name, each in comparisons.items():
            figures = np.stack(
                [each.live_ratios, each.simulated_ratios, each.live_secs, each.simulated_secs]
            )
            for k, kind in enumerate(each.kinds):
                rounds = " ".join(f"{ratio:.4f}" for ratio in np.exp(each.log_ratios[k]))
                writer.writerow([name, k, kind, *(f"{x:.6f}" for x in figures[:, k]), rounds])


def main() -> None:
    """Measures, simulates, and writes the table and the placements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--placements", type=int, default=42, help="per graph (default 42)")
    parser.add_argument("--rounds", type=int, default=2, help="of fresh processes (default 2)")
    parser.add_argument("--models", nargs="+", choices=_MODELS, default=[*_MODELS])
    parser.add_argument("--log_dir", default="runs/simulator_fidelity")
    parser.add_argument("--out_dir", default="benchmarks/results/simulator_fidelity")
    args = parser.parse_args()
    if args.placements < 2 or args.rounds < 2:
        parser.error("--placements and --rounds must be at least 2")
    comparisons = {name: _compare(name, args) for name in args.models}
    _write_placements(pathlib.Path(args.out_dir, "placements.csv"), comparisons)
    rows = [comparison.row(name) for name, comparison in comparisons.items()]
    text = table(_HEADERS, rows, "l" + "r" * (len(_HEADERS) - 1))
    write_table(f"{text}\n{_NOTES}", pathlib.Path(args.out_dir, "table.txt"))


if __name__ == "__main__":
    main()
