"""A live table in the form of ColocRL's table 2: models in a small size, on this computer.

Each placer has a few live trials on each model. The best placement that each has found is measured
again in the end, side by side with the others and with the graph as it came, everything on the
first device. Placers that need to know what operations cost are given a profile of the graph. What
is measured is kept in `--log_dir`, so that the benchmark goes on where it was stopped; the last
comparison is made anew. Writes table.md, table.csv, and what made them (provenance.json).
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

from benchmarks.harness.provenance import provenance
from benchmarks.live.model import LiveModel
from benchmarks.live.tables_report import LiveCell, live_table_markdown, write_live_csv
from benchmarks.models.catalogue import MODELS as CATALOGUE
from benchmarks.models.catalogue import build_model
from benchmarks.models.training_model import TrainingModel
from benchmarks.problems.experts import expert_placements
from tf_placer.environments.environment import Measurement
from tf_placer.environments.session import SessionEnvironment
from tf_placer.files import read_json, write_json
from tf_placer.live.confirmation import survey
from tf_placer.live.round_statistics import LEAST_ROUNDS
from tf_placer.machines.lookup import find_machine
from tf_placer.placers import AUTO, PLACERS, granularity_of, make_placer, needs_problem
from tf_placer.placers.heuristics.candidate_list import CandidateList
from tf_placer.placers.placer import Placer
from tf_placer.problem.coarse_groups import coarse_problem
from tf_placer.problem.placement_problem import PlacementProblem
from tf_placer.problem.problem_file import read_problem, write_problem
from tf_placer.report.progress import progress_line
from tf_placer.search.loop import Budget, best_trial, search
from tf_placer.search.measuring import InTurn
from tf_placer.search.trial_log import ORIGINAL, TrialLog
from tf_placer.text.units import format_duration

__all__ = ["COLUMNS", "MODELS", "MODEL_EXPERT", "main", "papers_expert"]

MODELS: Mapping[str, Mapping[str, Any]] = {
    "rnnlm_2": {"units": 256, "steps": 10, "batch": 64, "vocabulary": 2000},
    "nmt_2": {
        "units": 128,
        "source_steps": 8,
        "target_steps": 8,
        "batch": 64,
        "source_vocabulary": 2000,
        "target_vocabulary": 2000,
    },
    "inception_v3": {"batch": 4, "image_size": 75, "classes": 100, "width": 0.25},
}
"""The models of the table, and how they differ from full size: a step takes about 0.1 s."""

MODEL_EXPERT = "model_expert"
COLUMNS = (
    "single_device",
    MODEL_EXPERT,
    "expert",
    "scotch",
    "metis",
    "m_etf",
    "colocrl",
    "post",
    "auto",
)
"""The placers. MinCut is not among them: without another kind of device it is Scotch."""

_PROFILED_STEPS = 5
# Of a placer that searches in simulation, at most, in seconds.
_SIMULATION_SECS = 10.0
_SEED = 0


def papers_expert(model: str, live: LiveModel) -> list[np.ndarray]:
    """Places a model as people do, on devices of which all compute.

    Args:
        model: of the catalogue.
        live: the model on the machine.

    Returns:
        int32 [num_groups], a device for each group, for each rule that there is.
    """
    grouped, legal = live.grouped(MODEL_EXPERT), live.legal(MODEL_EXPERT)
    # The rules are for a CPU and GPUs: a CPU that may have nothing stands before the devices.
    beside_cpu = np.concatenate([np.zeros([len(legal), 1], np.bool_), legal], axis=1)
    placements = expert_placements(
        model,
        grouped.op_graph.names,
        grouped.operation_groups,
        beside_cpu,
        len(live.devices),
    )
    return [placement - 1 for placement in placements.values()]


def _make_placer(
    name: str, model: str, live: LiveModel, problem: PlacementProblem, seed: int
) -> Placer:
    groups, legal = live.grouped(name).group_graph, live.legal(name)
    if name == MODEL_EXPERT:
        candidates = papers_expert(model, live)
        placer: Placer = CandidateList(groups, legal, seed=seed, candidates=candidates)
        placer.name = name
        return placer
    placed = problem if granularity_of(name) == "fine" else coarse_problem(problem)[0]
    return make_placer(
        name,
        groups,
        legal,
        seed=seed,
        options={"search_secs": _SIMULATION_SECS} if name == AUTO else None,
        problem=placed if needs_problem(name) else None,
    )


def _costed(live: LiveModel, path: pathlib.Path) -> PlacementProblem:
    """Profiles the model for its problem, or reads the one that an earlier call has left."""
    about = path.with_name("about.json")
    machine = live.machine.to_json()
    expected = {"fingerprint": live.fingerprint, "machine": machine, "groups": "fine"}
    if not path.exists() or not about.exists() or read_json(about) != expected:
        path.parent.mkdir(parents=True, exist_ok=True)
        about.unlink(missing_ok=True)
        write_problem(live.costed(_PROFILED_STEPS), path)
        write_json(about, expected)
    return read_problem(path)


@dataclasses.dataclass(frozen=True)
class _Measuring:
    """Measures the placements of one placer."""

    live: LiveModel
    environment: SessionEnvironment
    placer: str

    def measure(self, placements: np.ndarray) -> list[Measurement]:
        """Measures placements; see `Environment.measure`."""
        return [
            self.environment.measure_assignment(self.live.assignment(self.placer, row))
            for row in placements
        ]


def _cells(model: str, args: argparse.Namespace, directory: str) -> list[LiveCell]:
    """Measures all cells of a model; the first is the graph as it came."""
    built = _build(model, args.small)
    live = LiveModel(built, find_machine(args.machine), directory)
    print(f"{model}: {len(live.grouped(MODEL_EXPERT).op_graph.names)} operations", flush=True)
    folder = pathlib.Path(args.log_dir, f"{model}-small" if args.small else model)
    problem = _costed(live, folder / "problem.json")
    cells = []
    candidates: dict[str, Mapping[str, str]] = {ORIGINAL: {}}
    confirmation = None
    # One for all: to start its processes takes longer than a trial.
    with live.environment(MODEL_EXPERT) as environment:
        environment.measure_assignment({})  # The first starts the processes.
        for name in args.placers:
            placer = _make_placer(name, model, live, problem, _SEED)
            header, path = live.header(name, _SEED), folder / name / "trials.jsonl"
            with TrialLog(path, header) as log:
                trials = search(
                    functools.partial(environment.measure_assignment, {}),
                    InTurn(_Measuring(live, environment, name)),
                    [placer],
                    log,
                    Budget(args.trials + 1, args.max_secs),
                    report=lambda trial, now: print(progress_line(trial, now), flush=True),
                )[: args.trials + 1]
            own = [trial for trial in trials if trial.placer != ORIGINAL]
            best = best_trial(own)
            failed = sum(trial.measurement.failure is not None for trial in own)
            label = None
            if best is not None and best.assignment is not None:
                assignment = live.assignment(name, best.assignment)
                # What several have found is measured once.
                label = next((k for k, known in candidates.items() if known == assignment), name)
                candidates[label] = assignment
            cells.append(LiveCell(model, name, len(own), failed, label))
        if len(candidates) > 1:
            confirmation = survey(
                environment,
                candidates,
                ORIGINAL,
                rounds=args.rounds,
                report=functools.partial(print, "again:", flush=True),
            )
    cells.insert(0, LiveCell(model, ORIGINAL, 0, 0, ORIGINAL))
    return [dataclasses.replace(cell, confirmation=confirmation) for cell in cells]


def _build(model: str, small: bool) -> TrainingModel:
    if small:
        return build_model(model, small=True)
    entry = CATALOGUE[model]
    module = importlib.import_module(f"benchmarks.models.{entry.module}")
    built: TrainingModel = module.build(**{**entry.settings, **MODELS[model]})
    return built


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def names(text: str) -> list[str]:
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"no {name!r}; there are: {', '.join(known)}")
        return list(dict.fromkeys(text.split(",")))

    return names


def main() -> None:
    """Makes the measurements that are missing and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models", type=_names(list(MODELS)), default=list(MODELS), help="by comma (default: all)"
    )
    parser.add_argument(
        "--placers",
        type=_names([MODEL_EXPERT, *PLACERS]),
        default=list(COLUMNS),
        help=f"by comma (default {','.join(COLUMNS)})",
    )
    parser.add_argument(
        "--trials", type=int, default=16, help="of each placer on each model (default 16)"
    )
    parser.add_argument(
        "--max_secs",
        type=float,
        default=25.0,
        help="of each placer on each model, the time that it computes included (default 25)",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=LEAST_ROUNDS,
        help=f"of measuring again (default {LEAST_ROUNDS}, the fewest that have an interval)",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="the small size of the catalogue, steps of milliseconds",
    )
    parser.add_argument("--machine", default="local:2")
    parser.add_argument("--log_dir", default="runs/live_tables")
    parser.add_argument("--out_dir", default="benchmarks/results/live_tables")
    args = parser.parse_args()
    if args.trials < 1 or args.rounds < LEAST_ROUNDS or not args.max_secs > 0:
        parser.error(
            f"--trials must be at least 1, --rounds at least {LEAST_ROUNDS}, --max_secs positive"
        )
    start_secs = time.monotonic()
    cells: list[LiveCell] = []
    for number, model in enumerate(args.models, 1):
        with tempfile.TemporaryDirectory() as directory:
            cells += _cells(model, args, directory)
        passed_secs = time.monotonic() - start_secs
        left_secs = passed_secs / number * (len(args.models) - number)
        print(
            f"[{number}/{len(args.models)}] {model} | {format_duration(left_secs)} left", flush=True
        )
    out = pathlib.Path(args.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    made_by = provenance()
    write_json(out / "provenance.json", made_by)
    page = live_table_markdown(
        cells,
        made_by,
        trials=args.trials,
        max_secs=args.max_secs,
        rounds=args.rounds,
        machine=args.machine,
    )
    (out / "table.md").write_text(page, encoding="utf-8")
    write_live_csv(out / "table.csv", cells)
    print(page)


if __name__ == "__main__":
    main()
